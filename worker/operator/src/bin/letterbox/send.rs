//! `letterbox send …`, `prove`: the files and secrets that these trials are given, and what came of
//! them.

use letterbox_operator::{OperatorError, rules_of};
use letterbox_trials::{
    ProveCommand, SendCommand, Signer, Signing, WEBHOOK_SECRET, explain, send_form, send_webhook,
};

use crate::{Output, Result, file, output};

/// Reads the secret and the rules.
fn signer(signing: &Signing) -> Result<Signer> {
    let rules = signing.rules.as_deref().map(file::read_text).transpose()?;
    let rules = rules_of(signing.tool, rules.as_deref()).map_err(OperatorError::from)?;
    let secret = match &signing.secret_file {
        Some(file) => file::read(file)?.trim_ascii().to_vec(),
        None => WEBHOOK_SECRET.require()?.expose().as_bytes().to_vec(),
    };
    Ok(Signer::new(rules, secret)?)
}

pub(crate) async fn run(verb: SendCommand) -> Result<Output> {
    Ok(match verb {
        SendCommand::Form {
            url,
            idempotency_key,
            file,
        } => {
            let payload = file::read_text(&file)?;
            Output::One(send_form(&url, idempotency_key, payload).await?)
        }
        SendCommand::Webhook {
            url,
            signing,
            explain: is_explained,
            file,
        } => {
            let signer = signer(&signing)?;
            let body = file::read(&file)?;
            Output::One(match is_explained {
                true => explain(&url, signing.tool, &signer, &body)?,
                false => send_webhook(url, &signer, body).await?,
            })
        }
    })
}

pub(crate) async fn prove(command: ProveCommand) -> Result<Output> {
    let signer = signer(&command.signing)?;
    let ledger = letterbox_trials::prove(command, &signer).await?;
    let code = if ledger.is_good() { 0 } else { output::LOOK };
    Ok(Output::status(ledger.text(), &ledger, code))
}
