//! A terminal's websocket.

use super::error::refused;
use super::http::Http;
use super::{ClientError, Fault};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::Url;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

const WHAT: &str = "connecting to a terminal";
/// The largest message that a terminal takes; a larger one ends the connection.
pub(crate) const MOST: usize = 60 << 10;
/// The largest that it sends, with a wide margin.
const MOST_HEARD: usize = 4 << 20;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Ws = WebSocketStream<Box<dyn Stream>>;

/// Both directions of a terminal, each on its own.
pub struct Socket {
    pub writer: Writer,
    pub reader: Reader,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Socket")
    }
}

pub struct Writer(SplitSink<Ws, Message>);
pub struct Reader(SplitStream<Ws>);

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

/// What comes from a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// What is on its screen next.
    Output(Bytes),
    /// Somebody is connected.
    Connected,
    /// An answer to a ping.
    Alive,
    End(Close),
}

/// How a terminal, or the connection to it, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Close {
    /// Of the shell, if that is what ended.
    pub exit_code: Option<i32>,
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Control {
    status: String,
    error: String,
    exit_code: Option<i32>,
    exit_reason: String,
}

pub(crate) async fn open(http: &Http, url: &Url) -> Result<Socket, ClientError> {
    let failed = |fault| ClientError::new(WHAT, fault);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let tcp = TcpStream::connect((host.as_str(), url.port_or_known_default().unwrap_or(443)))
        .await
        .map_err(|e| failed(Fault::NotSent(e.to_string())))?;
    let _ = tcp.set_nodelay(true);
    let stream: Box<dyn Stream> = if url.scheme() == "https" {
        let name = ServerName::try_from(host).map_err(|e| failed(Fault::NotSent(e.to_string())))?;
        let connector = TlsConnector::from(http.tls.clone());
        Box::new(connector.connect(name, tcp).await.map_err(|e| failed(Fault::NotSent(e.to_string())))?)
    } else {
        Box::new(tcp)
    };
    let mut address = url.clone();
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    if address.set_scheme(scheme).is_err() {
        return Err(failed(Fault::Forbidden(format!("{url} can't be reached by a websocket"))));
    }
    let mut request =
        address.as_str().into_client_request().map_err(|e| failed(Fault::Malformed(e.to_string())))?;
    for (name, value) in &http.headers {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    let config =
        WebSocketConfig::default().max_message_size(Some(MOST_HEARD)).max_frame_size(Some(MOST_HEARD));
    match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => {
            let (writer, reader) = socket.split();
            Ok(Socket { writer: Writer(writer), reader: Reader(reader) })
        }
        Err(Error::Http(answer)) => {
            Err(failed(refused(answer.status().as_u16(), answer.body().as_deref().unwrap_or_default())))
        }
        Err(error) => Err(failed(Fault::Lost(error.to_string()))),
    }
}

impl Writer {
    /// # Errors
    /// The connection is gone.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        for piece in bytes.chunks(MOST) {
            self.feed(Message::Binary(Bytes::copy_from_slice(piece))).await?;
        }
        Ok(())
    }

    /// # Errors
    /// The connection is gone.
    pub async fn ping(&mut self) -> Result<(), ClientError> {
        self.feed(Message::Ping(Bytes::new())).await
    }

    /// Says goodbye. What runs in the terminal goes on.
    pub async fn close(&mut self) {
        let _ = self.0.close().await;
    }

    async fn feed(&mut self, message: Message) -> Result<(), ClientError> {
        self.0
            .send(message)
            .await
            .map_err(|e| ClientError::new("writing to a terminal", Fault::Lost(e.to_string())))
    }
}

impl Reader {
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Said, ClientError> {
        let broken = |why: String| ClientError::new("reading from a terminal", Fault::Lost(why));
        loop {
            match self.0.next().await {
                None => return Err(broken("it was closed".into())),
                Some(Err(error)) => return Err(broken(error.to_string())),
                Some(Ok(Message::Binary(bytes))) => return Ok(Said::Output(bytes)),
                Some(Ok(Message::Text(text))) => match serde_json::from_str::<Control>(&text) {
                    Ok(control) if control.status == "connected" => return Ok(Said::Connected),
                    Ok(control) if control.status == "error" => {
                        return Ok(Said::End(Close { exit_code: None, reason: control.error }));
                    }
                    Ok(control) if control.status == "exited" => {
                        return Ok(Said::End(Close {
                            exit_code: control.exit_code,
                            reason: control.exit_reason,
                        }));
                    }
                    // Some servers send output as text.
                    _ => return Ok(Said::Output(Bytes::copy_from_slice(text.as_bytes()))),
                },
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                    let control: Control = serde_json::from_str(&reason).unwrap_or_default();
                    let reason = if control.exit_code.is_some() { control.exit_reason } else { reason };
                    return Ok(Said::End(Close { exit_code: control.exit_code, reason }));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Ok(Said::Alive),
                Some(Ok(Message::Frame(_))) => {}
            }
        }
    }
}
