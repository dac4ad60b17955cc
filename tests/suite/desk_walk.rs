//! One walk through the desk on a phone, in a browser: an owner makes, tries, shares and mends a
//! form, answers what waits, and reads the answers, without a line of JSON.

use fantoccini::Locator;
use letterbox_common::states::MemberRole;
use letterbox_tests::{Desk, MailServer, assert_tells};

use crate::{
    browser::{Browser, Engine, in_every_browser},
    site::Site,
};

in_every_browser!(an_owner_walks_from_an_empty_form_to_its_answers);

/// Types into the field with this id, instead of what stands there.
async fn fill(browser: &Browser, id: &str, text: &str) {
    let field = browser.page.find(Locator::Id(id)).await.unwrap();
    field.clear().await.unwrap();
    field.send_keys(text).await.unwrap();
}

/// Chooses in the list with this id.
async fn choose(browser: &Browser, id: &str, value: &str) {
    let list = browser.page.find(Locator::Id(id)).await.unwrap();
    list.select_by_value(value).await.unwrap();
}

/// Presses the button of the form in which the field with this id is.
async fn send(browser: &Browser, id: &str, button: &str) {
    let button = format!("//form[.//*[@id='{id}']]//button[normalize-space()='{button}']");
    let button = browser.page.find(Locator::XPath(&button)).await.unwrap();
    button.click().await.unwrap();
}

async fn follow(browser: &Browser, link: &str) {
    let link = browser.page.find(Locator::LinkText(link)).await.unwrap();
    link.click().await.unwrap();
}

async fn an_owner_walks_from_an_empty_form_to_its_answers(engine: Engine) {
    let mail = MailServer::start().await;
    let site = Site::new().await;
    let world = &site.world;
    let _worker = world.worker().await;
    let mut form = site.form().await;
    let ada = world.member(form.workspace, "ada", MemberRole::Owner).await;
    let desk = Desk::start(world).await;
    let phone = Browser::start(engine, 390, 844).await;
    let open = async |path: &str| phone.open(&format!("{}{path}", desk.url)).await;

    // Whoever was going somewhere arrives there.
    open(&format!("/accounts?workspace={}", form.workspace)).await;
    phone.await_text("Sign in").await;
    phone.open(&desk.link(world, ada).await).await;
    phone.press("Sign in as ada@example.com").await;
    phone.await_text("Connect an account").await;
    let unfold = "document.querySelectorAll('details').forEach((one) => one.open = true)";
    phone.evaluate(unfold).await;
    for (id, text) in [
        ("mail-name", "mail"),
        ("mail-base_url", &mail.url),
        ("sender", "Bakery <shop@example.com>"),
        ("mail-user", "ada"),
        ("mail-password", "secret"),
    ] {
        fill(&phone, id, text).await;
    }
    send(&phone, "mail-name", "Connect").await;
    phone.await_text("It sends e-mail from Bakery").await;

    // Questions, and the page that people will see.
    open(&format!("/forms/new?workspace={}", form.workspace)).await;
    fill(&phone, "name", "Orders").await;
    phone.press("Create").await;
    phone.await_text("Question 3").await;
    fill(&phone, "title", "Order bread").await;
    fill(&phone, "label-new", "Which bread?").await;
    choose(&phone, "type-new", "choice").await;
    fill(&phone, "choices-new", "Rye\nSourdough").await;
    phone.press("Add it").await;
    phone.await_text("Saved as a draft").await;
    let preview = "document.querySelector('iframe').scrollIntoView()";
    phone.evaluate(preview).await;
    phone.page.enter_frame(0).await.unwrap();
    phone.await_text("Order bread").await;
    phone.picture("walk-preview").await;
    assert_eq!(phone.evaluate("self.origin").await, "null", "a sandbox");
    let storage = "(() => { try { return localStorage.length } catch { return 'refused' } })()";
    assert_eq!(phone.evaluate(storage).await, "refused");
    phone.fill_in("Your name", "Ada").await;
    phone.press("Submit").await;
    phone.await_text("Please check your answers").await;
    phone
        .fill_in("Your e-mail address", "ada@example.com")
        .await;
    phone.fill_in("Your message", "Hello").await;
    phone.press("Submit").await;
    phone.await_text("Thank you").await;
    phone.page.enter_parent_frame().await.unwrap();
    follow(&phone, "The form").await;
    phone.await_text("What it asks and does").await;

    // What happens, tried without sending anything.
    follow(&phone, "Change what happens").await;
    phone.await_text("Send an e-mail").await;
    fill(&phone, "to", "shop@example.com").await;
    fill(&phone, "subject", "Order of {{ form.name }}").await;
    fill(&phone, "mail-called", "Tell the baker").await;
    let ask = phone.page.find(Locator::Css("input[name=ask]")).await;
    ask.unwrap().click().await.unwrap();
    send(&phone, "subject", "Add it").await;
    phone.await_text("Tell the baker").await;
    phone.assert_usable("walk-steps").await;
    follow(&phone, "Try it: what would be sent?").await;
    phone.await_text("Sample answers").await;
    phone.press("What would be sent?").await;
    phone.await_text("A person is asked first").await;
    phone.await_text("Order of Some words").await;
    phone.assert_usable("walk-tried").await;
    follow(&phone, "The form").await;

    // Shared, filled in, approved, answered.
    let deploy = async || {
        phone.press("Deploy and make a new link").await;
        phone.await_text("It is shown this once").await;
        phone.assert_usable("walk-link").await;
        let link = phone
            .evaluate("document.querySelector('.once').textContent")
            .await;
        let (_, token) = link.as_str().unwrap().split_once("token=").unwrap();
        token.to_owned()
    };
    phone.await_text("What it asks and does").await;
    form.token = deploy().await;
    phone.open(&site.link(&form)).await;
    phone.await_text("Order bread").await;
    phone.fill_in("Your name", "Zoe").await;
    phone
        .fill_in("Your e-mail address", "zoe@example.com")
        .await;
    phone.fill_in("Your message", "At noon").await;
    choose(&phone, "field-3", "Rye").await;
    phone.press("Submit").await;
    phone.await_text("Thank you").await;
    world.await_state("waiting_approval", 1).await;
    open("/").await;
    phone.await_text("Tell the baker").await;
    let question = phone.page.find(Locator::XPath("//h3/a")).await.unwrap();
    question.click().await.unwrap();
    phone.await_text("Order of Zoe").await;
    phone.press("Approve").await;
    phone.await_text("1 approved").await;
    world.await_state("succeeded", 1).await;
    let taken = mail.taken();
    assert_eq!(taken.len(), 1);
    assert_tells(&taken[0].text, &["zoe@example.com", "Rye"]);
    open(&format!("/forms?workspace={}", form.workspace)).await;
    follow(&phone, "Orders").await;
    follow(&phone, "its answers").await;
    phone.await_text("zoe@example.com").await;
    phone.assert_usable("walk-answers").await;

    // Mended: the old link is dead, and the new one shows what was mended.
    follow(&phone, "The form").await;
    follow(&phone, "Change the questions").await;
    fill(&phone, "title", "Order bread and rolls").await;
    phone.press("Save").await;
    phone.await_text("Saved as a draft").await;
    follow(&phone, "The form").await;
    phone.await_text("used once in the last 24 hours").await;
    let old = std::mem::take(&mut form.token);
    let sure = phone
        .page
        .find(Locator::Css("form[action$='/deploy'] input[name=sure]"));
    sure.await.unwrap().click().await.unwrap();
    form.token = deploy().await;
    phone.open(&site.link(&form)).await;
    phone.await_text("Order bread and rolls").await;
    form.token = old;
    phone.open("about:blank").await;
    phone.open(&site.link(&form)).await;
    phone.await_text("This form is not available").await;
    phone.close().await;
}
