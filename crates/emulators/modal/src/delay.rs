//! A connection to somewhere far away: every byte takes its time, in either direction, and none overtakes another.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How much may be under way; as much as a client's own window, or latency would become a limit of throughput.
const UNDER_WAY: usize = 1 << 20;
/// Pieces under way, each of 16 KiB at most.
const PIECES: usize = 4096;

/// The near end of a connection whose round trips take so long.
pub(crate) fn far(stream: TcpStream, round_trip: Duration) -> DuplexStream {
    let (near, end) = tokio::io::duplex(UNDER_WAY);
    let (from_peer, to_peer) = stream.into_split();
    let (from_near, to_near) = tokio::io::split(end);
    tokio::spawn(carry(from_peer, to_near, round_trip / 2));
    tokio::spawn(carry(from_near, to_peer, round_trip / 2));
    near
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    time: Duration,
) {
    let (piece, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let arriving = tokio::spawn(async move {
        while let Some((at, bytes)) = pieces.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if piece.send((Instant::now() + time, buffer[..count].to_vec())).await.is_err() {
            break;
        }
    }
    drop(piece);
    let _ = arriving.await;
}
