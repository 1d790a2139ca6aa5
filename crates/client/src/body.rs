//! What goes out with a request: all of it, or piece by piece.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// A request's body.
#[derive(Debug)]
pub(crate) enum Out {
    Whole(Option<Bytes>),
    /// Ends with `None`. A channel that ends without it cuts the body off, so that nobody takes it for the whole.
    Pieces(mpsc::Receiver<Option<Bytes>>),
}

impl Out {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Out {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => pieces.poll_recv(cx).map(|next| match next {
                Some(piece) => piece.map(|piece| Ok(Frame::data(piece))),
                None => Some(Err(io::ErrorKind::Interrupted.into())),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn only_an_end_that_is_said_is_the_end() {
        for whole in [true, false] {
            let (sender, receiver) = mpsc::channel(4);
            sender.send(Some(Bytes::from("half"))).await.unwrap();
            if whole {
                sender.send(None).await.unwrap();
            }
            drop(sender);
            assert_eq!(Out::Pieces(receiver).collect().await.is_ok(), whole);
        }
        assert_eq!(Out::whole(Bytes::from("x")).collect().await.unwrap().to_bytes(), "x");
    }
}
