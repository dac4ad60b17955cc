//! Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
//! README.md has the crates that it needs.
//!
//!     export WEBHOOK_URL=… WEBHOOK_SECRET=…
//!     cargo run -- body.json        # or, from standard input: cargo run < body.json

use std::{env, error::Error, fs, io::Read, process::ExitCode, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Client, Url, header, redirect};
use sha2::Sha256;

const TRIES: u32 = 6;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let url: Url = setting("WEBHOOK_URL")?.parse()?;
    let body = read_body()?;
    let signature = sign(&setting("WEBHOOK_SECRET")?, &body)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .timeout(Duration::from_secs(10))
        .redirect(redirect::Policy::none())
        .build()?;

    let mut wait = env::var("RETRY_FIRST_WAIT").map_or(Ok(1.0), |wait| wait.parse::<f64>())?;
    let mut tries = 1;
    loop {
        let posted = post(&client, &url, &signature, &body).await;
        let (status, answer, asked) = match posted {
            Ok((status, answer, asked)) => (Some(status), answer, asked),
            Err(error) => (None, format!("{error:?}"), 0),
        };
        if status == Some(202) {
            println!("{answer}");
            return Ok(ExitCode::SUCCESS);
        }
        let can_help = matches!(status, None | Some(408 | 429 | 500..));
        if !can_help || tries == TRIES {
            let status = status.map_or("no answer".to_owned(), |status| status.to_string());
            eprintln!("{status} {answer}");
            return Ok(ExitCode::FAILURE);
        }
        // A random part of a wait that doubles, or longer where the answer asks for it.
        let random = fastrand::f64() * wait.min(30.0);
        tokio::time::sleep(Duration::from_secs_f64(random.max(asked.into()))).await;
        wait *= 2.0;
        tries += 1;
    }
}

fn setting(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

fn read_body() -> std::io::Result<Vec<u8>> {
    match env::args_os().nth(1) {
        Some(file) => fs::read(file),
        None => {
            let mut body = Vec::new();
            std::io::stdin().read_to_end(&mut body)?;
            Ok(body)
        }
    }
}

/// The key is the text of the secret as it was shown, not what its digits stand for.
fn sign(secret: &str, body: &[u8]) -> Result<String, Box<dyn Error>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    mac.update(body);
    Ok(hex::encode(mac.finalize().into_bytes()))
}

/// Returns the status, the answer, and the seconds that it asks to wait.
async fn post(
    client: &Client,
    url: &Url,
    signature: &str,
    body: &[u8],
) -> Result<(u16, String, u32), reqwest::Error> {
    let response = client
        .post(url.clone())
        .header(header::CONTENT_TYPE, "application/json")
        .header("X-Service-Signature", signature)
        .body(body.to_vec())
        .send()
        .await?;
    let status = response.status().as_u16();
    let asked = response.headers().get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok((status, response.text().await?, asked.unwrap_or(0)))
}
