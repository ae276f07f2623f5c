//! The processes of `small.py`, in Rust's standard library alone: a bare byte pipe, a broker's
//! stand-in that answers at once, and a client that has many small requests in flight.
//!
//! small pipe PORT TARGET | small sink PORT | small load PORT SIZE TOTAL DEPTH
use std::env;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

/// A Produce answer of version 7 without its length and correlation id: topic "t", partition 0.
const PRODUCED: [u8; 45] = [
    0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255,
    255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn connect(port: &str) -> TcpStream {
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("nobody listens");
    stream.set_nodelay(true).unwrap();
    stream
}

fn accepted(port: &str, serve: fn(TcpStream, &str), more: &str) {
    for stream in TcpListener::bind(format!("127.0.0.1:{port}")).unwrap().incoming() {
        let (stream, more) = (stream.unwrap(), more.to_owned());
        stream.set_nodelay(true).unwrap();
        thread::spawn(move || serve(stream, &more));
    }
}

/// What comes in goes out on the other side: one read and one write each.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 262_144];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
}

fn pipe(client: TcpStream, target: &str) {
    let broker = connect(target);
    let (from, to) = (broker.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || copy(from, to));
    copy(client, broker);
}

fn answer(frame: &[u8], port: &str) -> Vec<u8> {
    let mut body = frame[4..8].to_vec(); // the correlation id
    match (frame[1], frame[3]) {
        (0, _) => body.extend(PRODUCED),
        (18, version) => {
            // Metadata up to 8, and ApiVersions; newer questions get error 35.
            body.extend([0, if version > 0 { 35 } else { 0 }, 0, 0, 0, 2]);
            body.extend([0, 18, 0, 0, 0, 0, 0, 3, 0, 0, 0, 8]);
        }
        _ => {
            body.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 9]);
            body.extend(b"127.0.0.1");
            body.extend(port.parse::<i32>().unwrap().to_be_bytes());
            body.extend([255, 255, 0, 1, b'c', 0, 0, 0, 1, 0, 0, 0, 0, 128, 0, 0, 0]);
        }
    }
    let mut whole = (body.len() as u32).to_be_bytes().to_vec();
    whole.extend(body);
    whole
}

/// Answer each frame by a write of its own, as a broker does.
fn sink(mut client: TcpStream, port: &str) {
    let (mut buffer, mut held) = (vec![0; 262_144], 0);
    while let Ok(count @ 1..) = client.read(&mut buffer[held..]) {
        held += count;
        let mut at = 0;
        while held - at >= 4 {
            let size = u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap()) as usize;
            if held - at < 4 + size {
                break;
            }
            if client.write_all(&answer(&buffer[at + 4..at + 4 + size], port)).is_err() {
                return;
            }
            at += 4 + size;
        }
        buffer.copy_within(at..held, 0);
        held -= at;
    }
}

/// A Produce of version 7, acks=-1, with records of zeroes.
fn request(size: usize, correlation: i32) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 7];
    body.extend(correlation.to_be_bytes());
    body.extend(b"\x00\x03app\xff\xff\xff\xff\x00\x00\x03\xe8\x00\x00\x00\x01\x00\x01t");
    body.extend(b"\x00\x00\x00\x01\x00\x00\x00\x00");
    let records = size - body.len() - 8;
    body.extend((records as u32).to_be_bytes());
    body.resize(body.len() + records, 0);
    let mut whole = (body.len() as u32).to_be_bytes().to_vec();
    whole.extend(body);
    whole
}

/// Each request is a write of its own; up to `depth` are unanswered.
fn load(port: &str, size: usize, total: usize, depth: usize) {
    let mut broker = connect(port);
    let answered = Arc::new(AtomicUsize::new(0));
    let (seen, mut from) = (answered.clone(), broker.try_clone().unwrap());
    let writer = thread::current();
    let reader = thread::spawn(move || {
        let (mut buffer, mut bytes) = (vec![0; 65_536], 0);
        while bytes < total * (8 + PRODUCED.len()) {
            bytes += match from.read(&mut buffer) {
                Ok(count @ 1..) => count,
                _ => panic!("closed after {bytes} bytes"),
            };
            seen.store(bytes / (8 + PRODUCED.len()), Ordering::Release);
            writer.unpark();
        }
    });
    for sent in 0..total {
        while sent >= answered.load(Ordering::Acquire) + depth {
            thread::park();
        }
        broker.write_all(&request(size, sent as i32)).expect("closed");
    }
    reader.join().unwrap();
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let number = |n: usize| args[n].parse().unwrap();
    match args[1].as_str() {
        "pipe" => accepted(&args[2], pipe, &args[3]),
        "sink" => accepted(&args[2], sink, &args[2]),
        _ => load(&args[2], number(3), number(4), number(5)),
    }
}
