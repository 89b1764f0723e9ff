//! A server of static files for this machine alone, with the headers of a page that computes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Serves a folder until the program ends.
pub fn run(folder: &Path, port: u16) -> Result<()> {
    if !folder.join("index.html").exists() {
        bail!("`{}` needs to hold the demo, but does not\n  help: `cargo xtask web build` makes it", folder.display());
    }
    let listener = TcpListener::bind(("127.0.0.1", port))
        .with_context(|| format!("port {port} can't be had\n  help: choose another with `--port`"))?;
    eprintln!("http://localhost:{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let folder = folder.to_owned();
        // A browser asks for several files at once, and keeps connections open that it does not use.
        #[allow(clippy::disallowed_methods, reason = "this program never runs in a browser")]
        std::thread::spawn(move || {
            if let Ok(stream) = stream {
                // A browser that goes away half-way wants nothing more.
                answer(&folder, stream).unwrap_or_default();
            }
        });
    }
    Ok(())
}

fn answer(folder: &Path, mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
    }
    let found = file(folder, &line).and_then(|path| Some((content_type(&path), std::fs::read(&path).ok()?)));
    let (status, kind, body) = match found {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", b"not found".to_vec()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ncache-control: no-cache\r\n\
         cross-origin-opener-policy: same-origin\r\ncross-origin-embedder-policy: require-corp\r\n\
         connection: close\r\n\r\n",
        body.len()
    )?;
    if !line.starts_with("HEAD ") {
        stream.write_all(&body)?;
    }
    stream.flush()
}

/// The file that a request line asks for; `None` for what lies outside the folder.
fn file(folder: &Path, line: &str) -> Option<PathBuf> {
    let mut words = line.split(' ');
    if !matches!(words.next(), Some("GET" | "HEAD")) {
        return None;
    }
    let path = words.next()?.split(['?', '#']).next()?.strip_prefix('/')?;
    let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let name = if path.is_empty() || path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    is_inside.then(|| folder.join(name))
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{content_type, file};

    #[test]
    fn only_files_of_the_folder_are_served() {
        let found = |line| file(Path::new("dist"), line);
        assert_eq!(found("GET / HTTP/1.1").as_deref(), Some(Path::new("dist/index.html")));
        assert_eq!(found("GET /engine/a.wasm?v=1 HTTP/1.1").as_deref(), Some(Path::new("dist/engine/a.wasm")));
        for outside in ["GET /../Cargo.toml HTTP/1.1", "GET //etc/passwd HTTP/1.1", "POST / HTTP/1.1", "GET", ""] {
            assert_eq!(found(outside), None, "{outside}");
        }
    }

    #[test]
    fn wasm_is_served_as_such() {
        assert_eq!(content_type(Path::new("a/b_bg.wasm")), "application/wasm");
        assert_eq!(content_type(Path::new("page.js")), "text/javascript; charset=utf-8");
    }
}
