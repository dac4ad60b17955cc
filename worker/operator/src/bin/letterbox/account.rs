//! `letterbox account …`

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::{AccountId, UserId},
    sealing::{SealedColumn, Secret, key_ring},
};
use letterbox_operator::{AccountSecret, AccountSettings, Named};
use serde_json::json;

use crate::{
    Output, Result, confirm::confirm_loss, file, in_workspace::InWorkspace, settings::CliSettings,
};

const COLUMNS: &str = "account_id name user_id base_url waits_for error disconnected_at";

/// How long the answer of a trial is awaited.
const PATIENCE: Duration = Duration::from_secs(25);

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Connect an account that the user's workflows may call; its credential is sealed at once
    Connect(Box<AccountConnection>),
    /// List the accounts of a workspace
    List(InWorkspace),
    /// Give an account another credential; what waits for an approval or a retry goes on with it
    Rotate {
        /// Id or name
        account: Named<AccountId>,
        #[command(flatten)]
        secret: SecretFlags,
    },
    /// Send a GET to an account and show what it answers: as an action would, where the policy lets
    /// that go on by itself
    Try {
        /// Id or name
        account: Named<AccountId>,
        /// The path below its address, with a query
        #[arg(long, default_value = "/")]
        path: String,
    },
    /// Disconnect an account; its credential is destroyed
    Disconnect {
        account_id: AccountId,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// The arguments of `account connect`.
#[derive(Args)]
pub(crate) struct AccountConnection {
    #[command(flatten)]
    workspace: InWorkspace,
    /// The user whose workflows may use it
    #[arg(long)]
    user: Named<UserId>,
    #[command(flatten)]
    settings: AccountSettings,
    #[command(flatten)]
    secret: SecretFlags,
}

/// Where the secret of an account is read from.
#[derive(Args)]
pub(crate) struct SecretFlags {
    #[command(flatten)]
    credential: CredentialFlags,
    /// A file with the certificate that the account's server is shown, in PEM
    #[arg(long, value_name = "FILE", requires = "client_key_file")]
    client_certificate_file: Option<PathBuf>,
    /// A file with the key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "client_certificate_file")]
    client_key_file: Option<PathBuf>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct CredentialFlags {
    /// A file with a token, sent as 'Authorization: Bearer ...'; - reads standard input
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
    /// A file with NAME:PASSWORD, sent as 'Authorization: Basic ...'
    #[arg(long, value_name = "FILE")]
    basic_file: Option<PathBuf>,
    /// The account's server wants no credential
    #[arg(long)]
    no_credential: bool,
    /// A file with the value of the account's header
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,
    /// A file with the secret of the client that gets the account's tokens by OAuth 2.0; an empty
    /// one for a client without a secret
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
}

pub(crate) async fn run(settings: &CliSettings, verb: AccountCommand) -> Result<Output> {
    Ok(match verb {
        AccountCommand::Connect(new) => connect(settings, &new).await?,
        AccountCommand::List(workspace) => {
            let operator = settings.operator().await?;
            let accounts = operator.accounts(workspace.id(&operator).await?).await?;
            Output::many(&accounts, COLUMNS)
        }
        AccountCommand::Rotate { account, secret } => {
            let secret = secret.read()?;
            let operator = settings.operator().await?;
            let keys = key_ring(SealedColumn::AccountCredential)?;
            let account = operator.id(&account).await?;
            Output::one(&operator.rotate_account(&keys, account, &secret).await?)
        }
        AccountCommand::Try { account, path } => {
            let operator = settings.operator().await?;
            let account = operator.id(&account).await?;
            Output::one(&operator.try_account(account, &path, PATIENCE).await?)
        }
        AccountCommand::Disconnect { account_id, yes } => {
            confirm_loss("the credential is destroyed", yes)?;
            let operator = settings.operator().await?;
            Output::one(&operator.disconnect_account(account_id).await?)
        }
    })
}

async fn connect(settings: &CliSettings, new: &AccountConnection) -> Result<Output> {
    // First: what can't be read is told before the database is asked.
    let secret = new.secret.read()?;
    let operator = settings.operator().await?;
    let keys = key_ring(SealedColumn::AccountCredential)?;
    let workspace = new.workspace.id_to_grant(&operator).await?;
    let user = operator.id(&new.user).await?;
    let connecting = operator.connect_account(&keys, workspace, user, &new.settings, &secret);
    let connected = connecting.await?;
    let mut shown = json!(&connected);
    if let Some(warning) = connected.warning() {
        shown["warnings"] = [warning].into();
    }
    Ok(Output::One(shown))
}

impl SecretFlags {
    fn read(&self) -> Result<AccountSecret> {
        let secret = self.credential.read()?;
        let files = (&self.client_certificate_file, &self.client_key_file);
        let (Some(certificate), Some(key)) = files else {
            return Ok(secret);
        };
        let pem = [file::read(certificate)?, b"\n".to_vec(), file::read(key)?].concat();
        Ok(AccountSecret::Certified(Box::new(secret), Secret::new(pem)))
    }
}

impl CredentialFlags {
    fn read(&self) -> Result<AccountSecret> {
        let read = |file: &PathBuf| file::read_secret(file);
        Ok(
            match (&self.bearer_file, &self.basic_file, &self.value_file) {
                (Some(file), ..) => AccountSecret::Bearer(read(file)?),
                (_, Some(file), _) => AccountSecret::Basic(read(file)?),
                (.., Some(file)) => AccountSecret::Credential(read(file)?),
                _ if self.no_credential => AccountSecret::None,
                _ => {
                    let secret = self.client_secret_file.as_ref().map(read).transpose()?;
                    AccountSecret::Client(secret.filter(|secret| !secret.expose().is_empty()))
                }
            },
        )
    }
}
