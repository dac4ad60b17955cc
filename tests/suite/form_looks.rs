//! How the form page looks to those who read it: whose form it is, in which language, in whose
//! frame, with what filled in; and whether everybody can use it.

use letterbox_common::form::Locale;
use letterbox_tests::{DEFINITION, Form, Front, eventually};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, Engine, Reader, in_every_browser},
    site::Site,
};

in_every_browser! {
    the_page_says_whose_form_it_is,
    a_link_fills_in_what_is_empty,
    a_checkbox_is_shown_like_other_fields,
    a_form_is_framed_by_those_whom_its_owner_names,
    everybody_can_use_every_state_of_the_page,
}
in_every_browser! {
    at length:
    without_a_language_the_page_speaks_the_readers,
    the_page_speaks_the_language_of_its_form,
    everybody_can_use_it_in_their_own_way,
}

/// One red pixel.
const LOGO: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4\
    2mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

async fn the_page_says_whose_form_it_is(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let page = json!({
        "organization": "Acme Gardens", "logo": LOGO, "color": "#0b6e4f", "button": "Send request",
        "privacy_url": "https://example.com/privacy", "continue_url": "https://example.com/next",
        "autocomplete": {"name": "name"}, "locale": "en",
    });
    let form = site.form_with("page", page).await;
    let page = Browser::start(engine, 1280, 900).await;
    page.open(&site.link(&form)).await;
    page.await_text("Acme Gardens").await;
    let logo = "document.getElementById('logo')";
    let drawn = format!("{logo}.complete && {logo}.naturalWidth === 1");
    eventually("the logo is drawn", async || {
        page.evaluate(&drawn).await == true
    })
    .await;
    let color = "getComputedStyle(document.getElementById('submit')).backgroundColor";
    assert_eq!(page.evaluate(color).await, "rgb(11, 110, 79)");
    let name = page.field("Your name").await;
    let filled = name.attr("autocomplete").await.unwrap();
    assert_eq!(filled.as_deref(), Some("name"));
    // What a field is meant for stands beside it, not in it.
    assert_eq!(name.attr("placeholder").await.unwrap(), None);
    page.await_text("Ada Lovelace").await;
    let privacy = "document.querySelector('#privacy a').href";
    let expected = "https://example.com/privacy";
    assert_eq!(page.evaluate(privacy).await, expected);
    page.picture("owner").await;
    page.answer("Ada").await;
    page.press_for("Send request", "Thank you").await;
    let next = "document.querySelector('#next a').href";
    assert_eq!(page.evaluate(next).await, "https://example.com/next");
    page.close().await;
}

/// Every language has all the words, and the page runs in its direction, boxes and buttons too.
async fn the_page_speaks_the_language_of_its_form(engine: Engine) {
    let site = Site::new().await;
    let page = Browser::start(engine, 1280, 900).await;
    for locale in Locale::ALL {
        let form = site.form_with("page", json!({"locale": locale})).await;
        page.visit(&site, &form).await;
        let words = format!("import('/forms/words/{locale}.js').then((words) => words.default)");
        let words = page.promised(&words).await;
        let said = "[document.documentElement.lang, document.documentElement.dir]";
        assert_eq!(page.evaluate(said).await, json!([locale, words["dir"]]));
        page.press(words["submit"].as_str().unwrap()).await;
        for word in ["checkAnswers", "required", "tick", "optional", "passwords"] {
            page.await_text(words[word].as_str().unwrap()).await;
        }
        let is_rtl = matches!(locale, Locale::Arabic | Locale::Hebrew | Locale::Persian);
        assert_eq!(words["dir"], if is_rtl { "rtl" } else { "ltr" });
        // A label, its field, a box and the button stand at one edge.
        let side = if is_rtl { "right" } else { "left" };
        let edges = format!(
            "['#field-0', '#field-4', '#submit', '#title'].map((one) => \
             Math.round(document.querySelector(one).getBoundingClientRect().{side}))"
        );
        let edges = page.evaluate(&edges).await;
        let mut others = edges.as_array().unwrap().iter();
        assert!(others.all(|edge| *edge == edges[0]), "{locale}: {edges}");
        let align = page.evaluate("getComputedStyle(document.getElementById('title')).textAlign");
        assert_eq!(align.await, side, "{locale}");
        page.picture(&format!("language-{locale}")).await;
    }
    page.close().await;
}

async fn without_a_language_the_page_speaks_the_readers(engine: Engine) {
    let site = Site::new().await;
    let mut arabic: Value = serde_json::from_str(DEFINITION).unwrap();
    arabic["form"]["title"] = "\u{627}\u{62a}\u{635}\u{644} \u{628}\u{646}\u{627}".into();
    let (english, arabic) = (
        site.form_with("page", json!({})).await,
        site.form_of(&arabic).await,
    );
    for (languages, of_english, of_arabic) in [
        ("fr-CA,en", "fr", "ar"),
        ("ar,de", "de", "ar"),
        ("he,xx", "en", "he"),
        ("xx", "en", "ar"),
    ] {
        let reader = Reader::of(languages);
        let page = Browser::start_for(engine, 1280, 900, reader).await;
        for (form, language) in [(&english, of_english), (&arabic, of_arabic)] {
            page.open(&site.link(form)).await;
            page.await_text("Message").await;
            let spoken = page.evaluate("document.documentElement.lang").await;
            assert_eq!(spoken, language, "{languages}");
        }
        page.close().await;
    }
}

/// What a link fills in is marked, sent by nobody but its reader, and takes nothing away.
async fn a_link_fills_in_what_is_empty(engine: Engine) {
    let site = Site::new().await;
    let form = site.form_with("page", json!({})).await;
    let page = Browser::start(engine, 1280, 900).await;
    let brought = "name=Ada+Lovelace&message=one%0Atwo&seats=1,5&terms=true&nobody=x&email=";
    page.open(&format!("{}#{brought}", site.link(&form))).await;
    page.await_text("has filled in the marked answers").await;
    let values = "[...document.querySelectorAll('#fields input, #fields textarea')].map((one) => \
        one.type === 'checkbox' ? one.checked : one.value)";
    let expected = json!(["Ada Lovelace", "", "one\ntwo", "1,5", false]);
    assert_eq!(page.evaluate(values).await, expected);
    let marks = "[...document.querySelectorAll('.note:not([hidden])')].map((one) => one.innerText)";
    let mark = "Filled in by the link";
    assert_eq!(page.evaluate(marks).await, json!([mark, mark, mark]));
    assert_eq!(page.evaluate("location.hash + location.search").await, "");
    site.world.assert_rows("form_submissions", 0).await;

    // What somebody has written stays.
    page.fill_in("Your name", "Grace").await;
    let brought = "name=Ada&email=ada@example.com";
    page.open(&format!("{}#{brought}", site.link(&form))).await;
    page.await_text("has filled in the marked answers").await;
    let expected = json!(["Grace", "ada@example.com", "one\ntwo", "1,5", false]);
    assert_eq!(page.evaluate(values).await, expected);
    page.close().await;
}

/// A checkbox has its hint, is dark in the dark, and is framed where it fails.
async fn a_checkbox_is_shown_like_other_fields(engine: Engine) {
    let site = Site::new().await;
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    definition["form"]["fields"][4]["placeholder"] = "You can withdraw later".into();
    let form = site.form_of(&definition).await;
    let dark = Reader::in_the_dark();
    let page = Browser::start_for(engine, 1280, 900, dark).await;
    page.visit(&site, &form).await;
    page.await_text("You can withdraw later").await;
    let terms = page.field("I accept the terms").await;
    let described = terms.attr("aria-describedby").await.unwrap();
    assert_eq!(described.as_deref(), Some("field-4-hint"));
    let both = async |property: &str| {
        let both = format!(
            "['#field-0', '#field-4'].map((one) => \
             getComputedStyle(document.querySelector(one)).{property})"
        );
        page.evaluate(&both).await
    };
    let same = async |property: &str| {
        let both = both(property).await;
        assert_eq!(both[0], both[1], "{property}");
        both[0].clone()
    };
    same("backgroundColor").await;
    let frame = same("borderTopColor").await;
    page.picture("checkbox-dark").await;
    page.press_for("Submit", "Please tick this box.").await;
    assert_ne!(same("borderTopColor").await, frame);
    page.picture("checkbox-dark-wrong").await;
    page.close().await;
}

/// Only pages of origins that the owner has named show the form in a frame.
async fn a_form_is_framed_by_those_whom_its_owner_names(engine: Engine) {
    let site = Site::new().await;
    let other = Front::bind().await;
    let origin = format!("http://{}", other.address());
    let other = other.lead_to(site.gateway.public_address());
    let named = site
        .form_with("page", json!({"frame_ancestors": [origin]}))
        .await;
    let unnamed = site.form_with("page", json!({})).await;
    let page = Browser::start(engine, 1280, 900).await;
    let shows_in_frame = async |form: &Form| {
        page.open(&format!("{}/forms/form.css", other.url)).await;
        let frame = format!(
            "new Promise((done) => {{ const frame = document.createElement('iframe'); \
             frame.onload = () => done(true); frame.src = {}; document.body.append(frame); }})",
            json!(site.link(form))
        );
        page.promised(&frame).await;
        page.page.enter_frame(0).await.unwrap();
        // What the browser shows instead of a page has no form.
        page.evaluate("document.getElementById('form') !== null")
            .await
            == true
    };
    assert!(shows_in_frame(&named).await);
    assert!(!shows_in_frame(&unnamed).await);
    page.close().await;
}

/// Takes the page through all its states, and looks at each.
async fn use_every_state(engine: Engine, reader: Reader, locale: Locale, name: &str) {
    let (site, _worker) = Site::with_worker().await;
    let look = json!({"locale": locale, "organization": "Acme", "logo": LOGO,
        "color": "#ffd400", "privacy_url": "https://example.com/privacy",
        "continue_url": "https://example.com/next"});
    let form = site.form_with("page", look).await;
    let page = Browser::start_for(engine, 1280, 900, reader).await;
    let words = format!("import('/forms/words/{locale}.js').then((words) => words.default)");
    page.open(&format!("{}#seats=1.234", site.link(&form)))
        .await;
    page.await_text("Contact us").await;
    for (feature, is_so) in [
        ("prefers-color-scheme: dark", reader.dark),
        ("forced-colors: active", reader.forced_colors),
    ] {
        let query = format!("matchMedia('({feature})').matches");
        assert_eq!(page.evaluate(&query).await, is_so, "{feature}");
    }
    let words = page.promised(&words).await;
    let say = |word: &str| words[word].as_str().unwrap().to_owned();
    page.assert_usable(&format!("{name}-form")).await;
    page.press_for(&say("submit"), &say("whichNumber")).await;
    page.assert_usable(&format!("{name}-errors")).await;

    page.fill_in("Seats", "3").await;
    page.answer(&"a".repeat(480)).await;
    let submitting = "window.fetch = ((real) => (url, request) => request?.method === 'POST' \
        && !window.passes ? Promise.reject(new Error('away')) : real(url, request))(fetch)";
    page.evaluate(submitting).await;
    page.press_for(&say("submit"), &say("notResponding")).await;
    page.assert_usable(&format!("{name}-outage")).await;
    let hurry = "window.setTimeout = ((real) => (then, after) => \
        real(then, after === 1000 && !window.passes ? 1 : after))(setTimeout)";
    page.evaluate(hurry).await;
    page.await_text(&say("notSent")).await;
    page.assert_usable(&format!("{name}-not-sent")).await;
    page.evaluate("window.passes = true").await;
    page.press_for(&say("retry"), &say("thanks")).await;
    page.assert_usable(&format!("{name}-done")).await;

    page.visit(&site, &form).await;
    page.fill_in("Message", "Not to be lost").await;
    site.world.relink(&form).await;
    page.page.refresh().await.unwrap();
    // The page of a dead link is not told a language.
    page.await_text("Not to be lost").await;
    page.assert_usable(&format!("{name}-dead")).await;

    let change = "ALTER TABLE rate_limits RENAME TO away";
    site.world.change(change).await;
    page.open(&site.link(&form)).await;
    eventually("trouble is told", async || {
        let shown = "document.getElementById('trouble').hidden === false";
        page.evaluate(shown).await == true
    })
    .await;
    page.assert_usable(&format!("{name}-trouble")).await;
    page.close().await;
}

async fn everybody_can_use_every_state_of_the_page(engine: Engine) {
    use_every_state(engine, Reader::default(), Locale::English, "light").await;
}

async fn everybody_can_use_it_in_their_own_way(engine: Engine) {
    let reader = Reader::default();
    let arabic = Reader::of("ar");
    let dark = Reader::in_the_dark();
    let forced = Reader {
        forced_colors: true,
        ..reader
    };
    use_every_state(engine, arabic, Locale::Arabic, "rtl").await;
    use_every_state(engine, dark, Locale::German, "dark").await;
    use_every_state(engine, forced, Locale::English, "forced").await;
}
