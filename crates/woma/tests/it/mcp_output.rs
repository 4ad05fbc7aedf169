//! Output for models: text within a budget that can be read on, pictures that fit, links to others.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::client::{Events, here, message, numbers};
use crate::harness::{unique, until};

const BUDGET: usize = 25_000;
const EVENT_BYTES_MAX: usize = 1024 * 1024;

fn read_on(reply: &Value, cut: &Value) -> String {
    let (mut offset, mut rest) = (cut["next_offset"].clone(), String::new());
    loop {
        let arguments = json!({
            "execution_id": reply["execution_id"], "stream": cut["stream"], "offset": offset,
        });
        let page = here().call("read_output", &arguments)["structuredContent"].take();
        assert_eq!((&page["offset"], &page["total_chars"]), (&offset, &cut["chars_total"]));
        assert!(page["text"].as_str().unwrap().chars().count() <= BUDGET);
        rest.push_str(page["text"].as_str().unwrap());
        match page.get("next_offset") {
            Some(next) => offset = next.clone(),
            None => return rest,
        }
    }
}

#[test]
fn a_truncated_output_can_be_read_on_exactly() {
    let session = unique("long");
    let code = "for n in range(100_000): print(n)\nraise ValueError('the end')";
    let reply = here().code(&session, code);
    let shown = reply["stdout"].as_str().unwrap();
    assert!(shown.chars().count() <= BUDGET, "{}", shown.len());
    assert_eq!(reply["error_message"], "ValueError: the end");
    let traceback = reply["error_traceback"].as_str().unwrap();
    assert!(traceback.ends_with("ValueError: the end"), "{traceback}");
    let cuts = reply["truncated"].as_array().unwrap();
    assert_eq!((cuts.len(), &cuts[0]["stream"]), (1, &json!("stdout")));
    let whole = numbers(100_000);
    assert_eq!(cuts[0]["chars_total"], whole.len());
    let next = usize::try_from(cuts[0]["next_offset"].as_u64().unwrap()).unwrap();
    assert!(shown.starts_with(&whole[..next]) && next > 1_000, "{next}");
    assert!(shown.ends_with("99999\n"), "the end is shown too");
    let marker = &shown[next..next + 400];
    let id = reply["execution_id"].as_str().unwrap();
    assert!(marker.contains("read_output") && marker.contains(id), "{marker}");
    assert_eq!(read_on(&reply, &cuts[0]), whole[next..]);
}

#[test]
fn displayed_text_can_be_read_on() {
    let code = "print('first')\ndisplay([n for n in range(20_000)])\n\
                class Long:\n    def __repr__(self): return 'é' * 60_000\ndisplay(Long())";
    let reply = here().code(&unique("displayed"), code);
    let shown = reply["stdout"].as_str().unwrap();
    assert!(shown.starts_with("first\n[0,"), "{shown}");
    let cut = &reply["truncated"][0];
    let next = usize::try_from(cut["next_offset"].as_u64().unwrap()).unwrap();
    let head: String = shown.chars().take(next).collect();
    let whole = format!("{head}{}", read_on(&reply, cut));
    assert_eq!(whole.chars().count() as u64, cut["chars_total"].as_u64().unwrap());
    assert!(whole.ends_with(&"é".repeat(60_000)), "{}", whole.len());
}

#[test]
fn a_traceback_and_a_flood_of_errors_share_the_budget() {
    let code = "import sys\nfor n in range(20_000): print('e', n, file=sys.stderr)\n\
                def f(n): return f(n + 1) if n < 900 else 1 / 0\nf(0)";
    let reply = here().code(&unique("share"), code);
    assert_eq!(reply.get("stdout"), None);
    let chars = |name: &str| reply[name].as_str().unwrap().chars().count();
    assert!(chars("stderr") + chars("error_traceback") <= BUDGET);
    let traceback = reply["error_traceback"].as_str().unwrap();
    assert!(traceback.trim_end().ends_with("ZeroDivisionError: division by zero"), "{traceback}");
    assert!(reply["stderr"].as_str().unwrap().starts_with("e 0\n"));
}

#[test]
fn terminal_escapes_are_removed() {
    let code = "import sys, warnings\n\
                for n in range(1_000): print(f'\\r{n / 10}%', end='')\nprint()\n\
                print('\\x1b[31mred\\x1b[0m and \\x1b]0;title\\x07plain')\n\
                for n in range(500): print('the same line', file=sys.stderr)\n\
                print('another', file=sys.stderr)";
    let reply = here().code(&unique("noise"), code);
    assert_eq!(reply["stdout"], "99.9%\nred and plain\n");
    let stderr = reply["stderr"].as_str().unwrap();
    assert_eq!(stderr.matches("the same line").count(), 1, "{stderr}");
    assert!(stderr.contains("499 more times") && stderr.ends_with("another\n"), "{stderr}");
}

#[test]
fn reports_output_beyond_the_limit() {
    let code = "print('x' * 3_000_000)\nprint('the end')";
    let reply = here().code(&unique("flood"), code);
    let kept = 1024 * 1024;
    let said = "\n[1,951,433 bytes of output left out]\n".len();
    assert_eq!(reply["output_bytes_dropped"], 3_000_009 - kept);
    assert_eq!(reply["truncated"][0]["chars_total"], kept + said);
    assert!(reply["stdout"].as_str().unwrap().ends_with("x\nthe end\n"), "{reply}");
    assert!(reply["stdout"].as_str().unwrap().chars().count() <= BUDGET);
}

fn blocks<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    let blocks = result["content"].as_array().unwrap().iter();
    blocks.filter(|block| block["type"] == kind).collect()
}

fn bytes(text: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap()
}

#[test]
fn one_chart_is_one_image() {
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()";
    let session = unique("chart");
    for _ in 0..2 {
        let arguments = json!({ "code": code, "session_id": session });
        let result = here().call("execute_code", &arguments);
        let images = blocks(&result, "image");
        assert_eq!((images.len(), result["content"].as_array().unwrap().len()), (1, 2));
        assert_eq!(images[0]["mimeType"], "image/png");
        assert!(bytes(&images[0]["data"]).starts_with(b"\x89PNG"));
        let url = result["structuredContent"]["charts"][0].as_str().unwrap();
        let text = format!("[chart 1]\nChart 1: {url}");
        let is_first = !result["structuredContent"]["session_created"].is_null();
        let new = if is_first { format!("\nNew session: {session}") } else { String::new() };
        assert_eq!(result["content"][0]["text"], format!("{text}{new}"));
        let path = &url[url.find("/dl/").unwrap()..];
        assert_eq!(bytes(&images[0]["data"]), here().get(path).body);
    }
    // Drawn, never shown, and then an exception.
    let code = "plt.plot([1])\n1 / 0";
    let result = here().call("execute_code", &json!({ "code": code, "session_id": session }));
    assert_eq!((&result["isError"], blocks(&result, "image").len()), (&json!(true), 1));
}

/// Every message of a call with progress, as it comes, in bytes.
fn event_sizes(arguments: &Value) -> (Vec<usize>, Value) {
    let params = json!({ "name": "execute_code", "arguments": arguments });
    let meta = json!({ "progressToken": 1 });
    let mut events = Events::new(here().modern("tools/call", &params, &meta));
    let (mut sizes, mut last) = (Vec::new(), Value::Null);
    while let Some((_, data)) = events.next_event() {
        sizes.push(data.len());
        last = serde_json::from_str(&data).unwrap();
    }
    (sizes, last["result"].take())
}

#[test]
fn many_charts_fit_into_one_event() {
    let code = "import matplotlib.pyplot as plt\nfor n in range(30):\n    plt.figure(figsize=(2, 2))\n    \
                plt.plot(range(n + 2))\nplt.show()";
    let (sizes, result) = event_sizes(&json!({ "code": code, "session_id": unique("many") }));
    assert!(sizes.iter().all(|size| *size < EVENT_BYTES_MAX), "{sizes:?}");
    let shown = blocks(&result, "image").len() + blocks(&result, "resource_link").len();
    let reply = &result["structuredContent"];
    assert_eq!(shown, reply["charts"].as_array().unwrap().len());
    // Beyond a number, figures are not shown, and the reply says so.
    assert!(shown == 30 || reply["warnings"].to_string().contains("figures"), "{shown}: {reply}");
    assert!(shown >= 20, "{shown}");
}

#[test]
fn a_large_picture_is_scaled_down_or_linked() {
    let noise = "import numpy as np\nfrom PIL import Image\nImage.fromarray(np.random.randint(0, \
                 255, (SIZE, SIZE, 3), dtype='uint8'))";
    let session = unique("noise");
    let code = noise.replace("SIZE", "900");
    let (sizes, result) = event_sizes(&json!({ "code": code, "session_id": session }));
    assert!(sizes.iter().all(|size| *size < EVENT_BYTES_MAX), "{sizes:?}");
    assert_eq!(blocks(&result, "image").len(), 1, "{}", result["structuredContent"]);
    // In its full size it is a resource.
    let path = format!("/api/v1/executions?session_id={session}");
    let mut records = Value::Null;
    until("the run is on record", || {
        records = here().get(&path).json();
        records["executions"].as_array().is_some_and(|rows| rows.len() == 1)
    });
    let id = records["executions"][0]["execution_id"].as_str().unwrap();
    let uri = json!({ "uri": format!("execution://{id}/images/1") });
    let read = message(&here().modern("resources/read", &uri, &json!({})).answer(false));
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "image/png");
    assert!(bytes(&contents["blob"]).len() > 2_000_000);
    let code = noise.replace("SIZE", "6000");
    let (sizes, result) = event_sizes(&json!({ "code": code, "session_id": session }));
    assert!(sizes.iter().all(|size| *size < EVENT_BYTES_MAX), "{sizes:?}");
    let reply = &result["structuredContent"];
    assert_eq!(reply["success"], true, "{reply}");
    let is_shown = result["content"].as_array().unwrap().len() > 1;
    assert!(is_shown || reply["warnings"].to_string().contains("too large"), "{reply}");
}

#[test]
fn an_svg_is_a_working_link() {
    let code = "class Drawing:\n    def _repr_svg_(self): return '<svg \
                xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"/>'\nDrawing()";
    let result = here().call("execute_code", &json!({ "code": code, "session_id": unique("svg") }));
    let links = blocks(&result, "resource_link");
    assert_eq!(links.len(), 1, "{result}");
    assert_eq!(links[0]["mimeType"], "image/svg+xml");
    let read = here().result("resources/read", &json!({ "uri": links[0]["uri"] }));
    assert!(bytes(&read["contents"][0]["blob"]).starts_with(b"<svg"), "{read}");
    let warnings = result["structuredContent"]["warnings"].to_string();
    assert!(warnings.contains(links[0]["uri"].as_str().unwrap()), "{warnings}");
}
