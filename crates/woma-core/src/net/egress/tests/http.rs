//! Plain HTTP: every request is for the host of its connection, and ends where it says.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{STEP_MAX, World};

/// Status codes of the answers, in order.
fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

#[tokio::test]
async fn requests_reach_the_host_written_anew() {
    let world = World::new("public.test, other.test").await;
    let request = "GET /a?b=c HTTP/1.1\r\nHost: Public.test.\r\nConnection: keep-alive, x-own\r\n\
                   X-Own: 1\r\nTE: trailers\r\nProxy-Authorization: secret\r\nAccept: */*\r\n\r\n\
                   POST /form HTTP/1.1\r\nhost: public.test:80\r\nContent-Length: 3\r\n\
                   Connection: close\r\n\r\nx=1";
    let answers = world.send("public.test:80", request.as_bytes()).await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
    let received = world.received();
    assert!(received.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("Accept: */*\r\n") && received.ends_with("x=1"), "{received}");
    for gone in ["keep-alive", "X-Own", "TE:", "secret", "Public"] {
        assert!(!received.contains(gone), "{gone}: {received}");
    }
    assert_eq!(world.received.lock().unwrap().len(), 1, "one connection for both");
    assert!(world.refused().is_empty());
}

#[tokio::test]
async fn a_request_for_another_host_is_refused_also_on_a_connection_in_use() {
    let world = World::new("public.test, other.test").await;
    let good = "GET /good HTTP/1.1\r\nHost: public.test\r\n\r\n";
    for (bad, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: public.test:8080\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: public.test@evil.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: public.test, evil.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: \r\n\r\n", "403"),
        ("GET http://evil.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n", "403"),
        ("GET http://public.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        ("GET https://public.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: public.test\r\nHost: evil.test\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: public.test\r\nHost: public.test\r\n\r\n", "400"),
        ("CONNECT evil.test:443 HTTP/1.1\r\nHost: public.test\r\n\r\n", "400"),
    ] {
        let answers = world.send("public.test:80", format!("{good}{bad}{good}").as_bytes()).await;
        assert_eq!(statuses(&answers), ["200", status], "{bad}: {answers}");
        let received = world.received();
        assert!(!received.contains("evil") && !received.contains("GET / "), "{bad}: {received}");
        assert_eq!(world.refused().len(), 1, "{bad}");
    }
}

#[tokio::test]
async fn requests_that_two_readers_could_read_differently_do_not_pass() {
    let world = World::new("public.test").await;
    let head = "POST / HTTP/1.1\r\nHost: public.test\r\n";
    let hidden = "GET /hidden HTTP/1.1\r\nHost: public.test\r\n\r\n";
    for smuggled in [
        format!("{head}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Content-Length: 0\r\nContent-Length: 44\r\n\r\n{hidden}"),
        format!("{head}Content-Length: +44\r\n\r\n{hidden}"),
        format!("{head}Content-Length: 0x2c\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{head}X: a\0b\r\n\r\n{hidden}"),
        format!("{head}X: a\rTransfer-Encoding: chunked\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1 HTTP/1.1\r\nHost: public.test\r\n\r\n{hidden}"),
        format!("GET /\t HTTP/1.1\r\nHost: public.test\r\n\r\n{hidden}"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{hidden}"),
    ] {
        let answers = world.send("public.test:80", smuggled.as_bytes()).await;
        assert!(statuses(&answers).len() <= 1, "{smuggled:?}: {answers}");
        let received = world.received();
        assert!(!received.contains("/hidden"), "{smuggled:?}: {received}");
    }
    // A chunked body is one body, and what follows it is the next request.
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let answers = world.send("public.test:80", chunked.as_bytes()).await;
    assert_eq!(statuses(&answers)[0], "200", "{answers}");
}

#[tokio::test]
async fn a_connection_may_switch_to_another_protocol() {
    let world = World::new("public.test").await;
    let mut stream = world.open("public.test:80");
    let request =
        "GET /ws HTTP/1.1\r\nHost: public.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    let step = async {
        while !seen.contains("\r\n\r\n") {
            let length = stream.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        stream.write_all(b"hello").await.unwrap();
        while !seen.ends_with("hello") {
            let length = stream.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    };
    tokio::time::timeout(STEP_MAX, step).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 101 "), "{seen}");
}

#[tokio::test]
async fn a_proxy_takes_whole_addresses_and_no_others() {
    let world = World::new("public.test:80+8080, *.other.test").await;
    for (request, status) in [
        ("GET http://public.test/x HTTP/1.1\r\nHost: public.test\r\n\r\n", "200"),
        ("GET http://public.test:8080/x HTTP/1.1\r\nHost: public.test:8080\r\n\r\n", "200"),
        ("GET http://public.test/x HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        ("GET http://evil.test/x HTTP/1.1\r\nHost: public.test\r\n\r\n", "403"),
        ("GET http://evil.test/x HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        ("GET /x HTTP/1.1\r\nHost: public.test\r\n\r\n", "400"),
        ("GET https://public.test/x HTTP/1.1\r\nHost: public.test\r\n\r\n", "400"),
        ("GET ftp://public.test/x HTTP/1.1\r\nHost: public.test\r\n\r\n", "400"),
        ("CONNECT public.test HTTP/1.1\r\nHost: public.test\r\n\r\n", "400"),
        ("CONNECT evil.test:443 HTTP/1.1\r\nHost: public.test:443\r\n\r\n", "403"),
        ("CONNECT public.test:443 HTTP/1.1\r\nHost: public.test:443\r\n\r\n", "403"),
    ] {
        let answers = world.send_proxy(request.as_bytes()).await;
        assert_eq!(statuses(&answers)[0], status, "{request}: {answers}");
    }
    assert!(!world.received().contains("evil"), "{}", world.received());
}
