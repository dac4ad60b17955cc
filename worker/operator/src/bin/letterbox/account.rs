//! `letterbox account …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::{AccountId, UserId},
    sealing::{SealedColumn, Secret, key_ring},
};
use letterbox_operator::{Named, NewAccount, NewGrant, OperatorError, Reason, bearer};
use url::Url;

use crate::{
    Failure, Output, confirm::confirm_loss, file, in_workspace::InWorkspace, output,
    settings::CliSettings,
};

const COLUMNS: [&str; 6] = [
    "account_id",
    "name",
    "user_id",
    "base_url",
    "waits_for",
    "disconnected_at",
];

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Connect an account that the user's workflows may call; its credential is sealed at once
    Connect {
        #[command(flatten)]
        workspace: InWorkspace,
        /// The user whose workflows may use it
        #[arg(long)]
        user: Named<UserId>,
        /// The name by which actions refer to it
        #[arg(long)]
        name: String,
        /// The URL that every request begins with; actions can't leave it
        #[arg(long)]
        base_url: Url,
        #[command(flatten)]
        credential: CredentialFlags,
        /// Name of the header that carries the credential instead of 'Authorization'
        #[arg(long, value_name = "NAME", requires = "value_file")]
        header: Option<String>,
        #[command(flatten)]
        oauth: Box<Oauth>,
    },
    /// List the accounts of a workspace
    List(InWorkspace),
    /// Give an account another credential; what waits for an approval or a retry goes on with it
    Rotate {
        /// Id or name
        account: Named<AccountId>,
        #[command(flatten)]
        credential: CredentialFlags,
    },
    /// Disconnect an account; its credential is destroyed
    Disconnect {
        account_id: AccountId,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(settings: &CliSettings, verb: AccountCommand) -> Result<Output, Failure> {
    Ok(match verb {
        AccountCommand::Connect {
            workspace,
            user,
            name,
            base_url,
            credential,
            header,
            oauth,
        } => {
            let given = credential.read()?;
            let operator = settings.operator().await?;
            let keys = key_ring(SealedColumn::AccountCredential)?;
            let workspace = workspace.id_to_grant(&operator).await?;
            let user = operator.id(&user).await?;
            let connected = match (given, oauth) {
                (Given::Credential(credential), _) => {
                    let account = NewAccount {
                        workspace,
                        user,
                        name,
                        base_url,
                        header: header.unwrap_or_else(|| "authorization".to_owned()),
                        credential,
                    };
                    operator.connect_account(&keys, &account).await?
                }
                (Given::ClientSecret(client_secret), oauth) => {
                    let account = NewGrant {
                        workspace,
                        user,
                        name,
                        base_url,
                        token_url: oauth
                            .token_url
                            .ok_or(OperatorError::from(Reason::InvalidOauthUrl))?,
                        authorize_url: oauth.authorize_url,
                        client_id: oauth.client_id.unwrap_or_default(),
                        client_secret,
                        scope: oauth.scope,
                    };
                    operator.connect_by_grant(&keys, &account).await?
                }
            };
            let mut told = output::value(&connected);
            if let Some(warning) = connected.warning() {
                told["warnings"] = [warning].into();
            }
            Output::One(told)
        }
        AccountCommand::List(workspace) => {
            let operator = settings.operator().await?;
            let accounts = operator.accounts(workspace.id(&operator).await?).await?;
            Output::many(&accounts, &COLUMNS)
        }
        AccountCommand::Rotate {
            account,
            credential,
        } => {
            let given = credential.read()?;
            let operator = settings.operator().await?;
            let keys = key_ring(SealedColumn::AccountCredential)?;
            let account = operator.id(&account).await?;
            let rotated = match given {
                Given::Credential(credential) => {
                    let rotating = operator.rotate_account(&keys, account, &credential);
                    rotating.await?
                }
                Given::ClientSecret(secret) => {
                    let secret = secret.ok_or(OperatorError::from(Reason::InvalidCredential))?;
                    let rotating = operator.rotate_client_secret(&keys, account, &secret);
                    rotating.await?
                }
            };
            Output::one(&rotated)
        }
        AccountCommand::Disconnect { account_id, yes } => {
            confirm_loss("the credential is destroyed", yes)?;
            let operator = settings.operator().await?;
            Output::one(&operator.disconnect_account(account_id).await?)
        }
    })
}

/// Where a credential is read from.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct CredentialFlags {
    /// A file with a token, sent as 'Authorization: Bearer ...'; - reads standard input
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
    /// A file with the value of the account's header
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,
    /// A file with the secret of the client that gets the account's tokens by OAuth 2.0; an empty
    /// one for a client without a secret
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
}

/// Where an account gets its tokens.
#[derive(Args)]
pub(crate) struct Oauth {
    /// Where its tokens are got by OAuth 2.0
    #[arg(long, value_name = "URL", requires = "client_secret_file")]
    token_url: Option<Url>,
    /// Where its owner lets Letterbox in, in the desk; without it the client's own credentials do
    #[arg(long, value_name = "URL", requires = "token_url")]
    authorize_url: Option<Url>,
    /// Client id at the authorization server
    #[arg(long, value_name = "ID", requires = "token_url")]
    client_id: Option<String>,
    /// Scope: words separated by spaces
    #[arg(long, requires = "token_url")]
    scope: Option<String>,
}

/// What was read.
enum Given {
    /// The value of the header that carries it.
    Credential(Secret),
    /// The secret of a client, if it has one.
    ClientSecret(Option<Secret>),
}

impl CredentialFlags {
    fn read(&self) -> Result<Given, Failure> {
        let read = |file: &PathBuf| Ok::<_, Failure>(file::read(file)?.trim_ascii().to_vec());
        Ok(match (&self.bearer_file, &self.value_file) {
            (Some(file), _) => Given::Credential(bearer(&read(file)?)),
            (None, Some(file)) => Given::Credential(Secret::new(read(file)?)),
            (None, None) => {
                let secret = self.client_secret_file.as_ref().map(read).transpose()?;
                let secret = secret.filter(|secret| !secret.is_empty());
                Given::ClientSecret(secret.map(Secret::new))
            }
        })
    }
}
