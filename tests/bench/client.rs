//! One connection of the load generator. It speaks just enough HTTP/1.1 for the answers that are
//! measured here, because every microsecond that it takes is missing where something is measured:
//! two buffers that are used again, no headers but the length.

use std::io::{Error, ErrorKind, Result};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// `HTTP/1.1 200`
const STATUS: std::ops::Range<usize> = 9..12;

/// A connection, kept open from one request to the next.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Client {
    pub async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            received: Vec::with_capacity(8 << 10),
        })
    }

    /// Sends a whole request and waits for its answer. After an error the connection is of no use.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.received.clear();
        self.stream.write_all(request).await?;
        let (status, body) = loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = head_length(&self.received) {
                let (status, length) = parse(&self.received[..head])?;
                let whole = head + length;
                while self.received.len() < whole {
                    if self.stream.read_buf(&mut self.received).await? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                break (status, head..whole);
            }
        };
        let body = &self.received[body];
        Ok(Answer { status, body })
    }
}

fn head_length(received: &[u8]) -> Option<usize> {
    let ends = |window: &[u8]| window == END_OF_HEAD;
    let at = received.windows(END_OF_HEAD.len()).position(ends)?;
    Some(at + END_OF_HEAD.len())
}

/// Status and length of the body.
fn parse(head: &[u8]) -> Result<(u16, usize)> {
    let text = std::str::from_utf8(head).map_err(|_| Error::from(ErrorKind::InvalidData))?;
    let status = text.get(STATUS).and_then(|status| status.parse().ok());
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    let both = status.zip(length);
    both.ok_or_else(|| Error::new(ErrorKind::InvalidData, "an answer without its length"))
}
