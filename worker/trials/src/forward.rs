//! A signal posted to a program that is being written, as its tool has sent it.

use letterbox_common::{ids::DeliveryId, webhook::KeptHeaders};
use url::Url;

use crate::{
    TrialError,
    send::{Signer, exchange},
};

/// Posts a signal with the headers that were kept of it; gives the status of the answer.
pub async fn forward(
    to: Url,
    signer: Option<&Signer>,
    id: DeliveryId,
    body: &str,
    kept: &KeptHeaders,
) -> Result<u16, TrialError> {
    let headers = kept.signed.clone().into_iter();
    let mut headers: Vec<_> = headers.chain(kept.unsigned.clone()).collect();
    if let Some(signer) = signer {
        // Under the same id, so that the program can tell repeats; at this time, or it is too old.
        let known = signer.rules.id_header.as_ref();
        let known = known.and_then(|name| kept.signed.get(&name.to_ascii_lowercase()));
        let id = id.to_string();
        for (name, value) in signer.sign(body.as_bytes(), known.unwrap_or(&id)).headers {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            headers.push((name.to_string(), value));
        }
    }
    let headers = headers.iter();
    let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
    let (status, _) = exchange(to, &headers, body.as_bytes().to_vec()).await?;
    Ok(status)
}
