//! The desk, and a browser without scripts that visits it.

use letterbox_common::{
    ids::{ApprovalId, WorkspaceId},
    states::MemberRole,
};
use reqwest::{Response, redirect::Policy};

use crate::{Front, Process, Proxy, World};

/// Where form links lead.
pub const APP: &str = "https://app.example";

/// A desk at an address of its own.
pub struct Desk {
    pub url: String,
    pub process: Process,
    _way: Proxy,
}

impl Desk {
    pub async fn start(world: &World) -> Self {
        Self::start_with(world, &[]).await
    }

    pub async fn start_with(world: &World, more: &[(&str, &str)]) -> Self {
        let front = Front::bind().await;
        let url = format!("http://{}", front.address());
        let settings = [
            ("LETTERBOX_DESK_URL", url.as_str()),
            ("LETTERBOX_APP_URL", APP),
        ];
        let process = world.start("letterbox-desk", &[&settings, more].concat());
        process.await_ready().await;
        let way = front.lead_to(process.public_address());
        Self {
            url,
            process,
            _way: way,
        }
    }

    pub async fn link(&self, world: &World, user: impl ToString) -> String {
        sign_in_link(world, &self.url, user)
    }

    /// A desk, and a browser without scripts in which a user is signed in.
    pub async fn with_visitor(world: &World, user: impl ToString) -> (Self, Visitor) {
        let desk = Self::start(world).await;
        let visitor = desk.visitor(world, user).await;
        (desk, visitor)
    }

    /// A new user in a workspace, signed in.
    pub async fn member(
        &self,
        world: &World,
        workspace: WorkspaceId,
        name: &str,
        role: MemberRole,
    ) -> Visitor {
        let user = world.member(workspace, name, role).await;
        self.visitor(world, user).await
    }

    /// A browser without scripts, signed in.
    pub async fn visitor(&self, world: &World, user: impl ToString) -> Visitor {
        Visitor::signed_in(&self.url, &self.link(world, user).await).await
    }
}

/// A link with which a user signs in to the desk at `url`.
pub fn sign_in_link(world: &World, url: &str, user: impl ToString) -> String {
    let order = format!("user sign-in-link {}", user.to_string());
    let link = world.order_with(&[("LETTERBOX_DESK_URL", url)], order);
    link["url"].as_str().unwrap().to_owned()
}

/// A client that does what a page says, and what it does not.
pub struct Visitor {
    http: reqwest::Client,
    url: String,
    /// Where it says that its forms come from.
    pub origin: Option<String>,
    pub cookie: String,
    /// Whom the proxy names as the client.
    pub address: String,
}

impl Visitor {
    pub const ADDRESS: &str = "198.51.100.9";

    /// A visitor of the desk at `url` who has followed a link to sign in.
    pub async fn signed_in(url: &str, link: &str) -> Self {
        let mut visitor = Self::new(url);
        let (_, token) = link.split_once("token=").unwrap();
        let signed_in = visitor.send("/sign-in", &[("token", token)]).await;
        assert_eq!(signed_in.status(), 303);
        visitor.keep(&signed_in);
        visitor
    }

    /// Keeps the cookie that an answer sets, and no other one.
    pub fn keep(&mut self, answer: &Response) {
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        self.cookie = cookie.split(';').next().unwrap().to_owned();
    }

    pub fn new(url: &str) -> Self {
        let http = reqwest::Client::builder().redirect(Policy::none());
        Self {
            http: http.build().unwrap(),
            url: url.to_owned(),
            origin: Some(url.to_owned()),
            cookie: String::new(),
            address: Self::ADDRESS.to_owned(),
        }
    }

    pub async fn get(&self, path: &str) -> Response {
        self.try_get(path).await.unwrap()
    }

    /// As [`Self::get`], where the desk may be away.
    pub async fn try_get(&self, path: &str) -> reqwest::Result<Response> {
        let request = self.http.get(format!("{}{path}", self.url));
        let request = request.header("x-forwarded-for", &self.address);
        request.header("cookie", &self.cookie).send().await
    }

    pub async fn page(&self, path: &str) -> String {
        page_of(self.get(path).await, 200).await
    }

    /// Asserts that a page shows some words.
    pub async fn assert_shows(&self, path: &str, words: &str) {
        let page = self.page(path).await;
        assert!(page.contains(words), "{path}: {page}");
    }

    /// Posts a form.
    pub async fn send(&self, path: &str, form: &[(&str, &str)]) -> Response {
        self.try_send(path, form).await.unwrap()
    }

    /// As [`Self::send`], where the desk may be away.
    pub async fn try_send(&self, path: &str, form: &[(&str, &str)]) -> reqwest::Result<Response> {
        let encoded = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let media_type = "application/x-www-form-urlencoded";
        self.try_post(path, media_type, encoded).await
    }

    pub async fn post(&self, path: &str, media_type: &str, body: String) -> Response {
        self.try_post(path, media_type, body).await.unwrap()
    }

    async fn try_post(
        &self,
        path: &str,
        media_type: &str,
        body: String,
    ) -> reqwest::Result<Response> {
        let mut request = self
            .http
            .post(format!("{}{path}", self.url))
            .header("x-forwarded-for", &self.address)
            .header("cookie", &self.cookie)
            .header("content-type", media_type)
            .body(body);
        if let Some(origin) = &self.origin {
            request = request.header("origin", origin);
        }
        request.send().await
    }

    /// What the forms of a page carry.
    pub async fn form_token(&self) -> String {
        form_token_of(&self.page("/").await).to_owned()
    }

    /// Posts a form of a page, with what its forms carry.
    pub async fn order(&self, path: &str, form: &[(&str, &str)]) -> Response {
        let token = self.form_token().await;
        let carried = [("form_token", token.as_str())];
        self.send(path, &[&carried, form].concat()).await
    }

    /// Posts a form of a page in the way that carries files.
    pub async fn order_with_file(&self, path: &str, form: &[(&str, &str)]) -> Response {
        let token = self.form_token().await;
        // As browsers send a field for a file when none is chosen.
        let none = ("definition\"; filename=\"", "");
        let carried = [("form_token", token.as_str()), none];
        let parts = carried.iter().chain(form).map(|(name, value)| {
            format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        });
        let body = format!("{}--XX--\r\n", parts.collect::<String>());
        let media_type = "multipart/form-data; boundary=XX";
        self.post(path, media_type, body).await
    }

    /// Goes where an answer leads, with the cookie that it sets.
    pub async fn follow(&self, answer: &Response) -> Response {
        assert_eq!(answer.status(), 303);
        let value = |name: &str| answer.headers()[name].to_str().unwrap();
        let cookie = value("set-cookie").split(';').next().unwrap();
        let request = self.http.get(format!("{}{}", self.url, value("location")));
        let cookies = format!("{}; {cookie}", self.cookie);
        request.header("cookie", cookies).send().await.unwrap()
    }

    pub async fn answer(&self, question: ApprovalId, answer: &str) -> Response {
        let question = question.to_string();
        let form = [
            ("question", question.as_str()),
            ("answer", answer),
            ("reason", "looked at it"),
        ];
        self.order("/questions", &form).await
    }
}

/// The page of an answer with this status.
pub async fn page_of(answer: Response, status: u16) -> String {
    assert_eq!(answer.status(), status, "{}", answer.url());
    answer.text().await.unwrap()
}

/// What the forms of this page carry.
pub fn form_token_of(page: &str) -> &str {
    let (_, token) = page.split_once("name=\"form_token\" value=\"").unwrap();
    token.split_once('"').unwrap().0
}
