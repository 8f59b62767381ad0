use esker_engine::Bytes;

use super::file::{self, Format, read_as};
use super::input::Input;
use super::record::{LeftOut, Record};
use super::table::Encoding;
use crate::terminal::Failure;

fn records() -> Vec<Record> {
    let every: Vec<u8> = (0..=255).collect();
    let record = |key: &[u8], value: &[u8], expires_at_ms| Record {
        database: (key.len() % 3) as u8,
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        expires_at_ms,
    };
    vec![
        record(b"plain", b"hello", None),
        record(&every, b"", Some(4_102_444_800_123)),
        record("schlüssel,\"".as_bytes(), &every, None),
        record(b"lines", b"a\r\nb\n", Some(u64::MAX)),
    ]
}

/// Reads records from a file with the given bytes.
fn read(format: Format, text: &[u8]) -> Result<Vec<Record>, String> {
    let input = Input::of(Box::new(std::io::Cursor::new(text.to_vec())), "file".to_owned(), None);
    let text_of = |failure: Failure| match failure {
        Failure::Usage(text) | Failure::Failed(text) => text,
    };
    let mut source = read_as(format, input).map_err(text_of)?;
    let (mut records, mut left_out) = (Vec::new(), LeftOut::default());
    while let Some(record) = source.next(&mut left_out).map_err(text_of)? {
        records.push(record);
    }
    Ok(records)
}

fn written(format: Format, encoding: Encoding) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let (mut sink, new_file) = file::create(&path, Some(format), encoding).map_err(|_| "refused").unwrap();
    let mut left_out = LeftOut::default();
    for record in records() {
        sink.put(record, &mut left_out).map_err(|_| "failed").unwrap();
    }
    sink.finish(&mut left_out).map_err(|_| "failed").unwrap();
    assert!(!path.exists(), "it has its name when all of it is there");
    new_file.unwrap().keep().map_err(|_| "failed").unwrap();
    std::fs::read(&path).unwrap()
}

const FORMATS: [(Format, Encoding); 4] = [
    (Format::Jsonl, Encoding::Base64),
    (Format::Csv, Encoding::Base64),
    (Format::Csv, Encoding::Hex),
    (Format::Resp, Encoding::Base64),
];

#[test]
fn export_round_trips_in_every_format() {
    for (format, encoding) in FORMATS {
        assert_eq!(read(format, &written(format, encoding)).unwrap(), records(), "{format:?} {encoding:?}");
    }
}

/// A cut at the end of a record is undetectable, because no format states the number of records.
#[test]
fn file_cut_within_record_ends_early() {
    for (format, encoding) in FORMATS {
        let text = written(format, encoding);
        let whole = read(format, &text).unwrap();
        for end in 1..text.len() {
            match read(format, &text[..end]) {
                Ok(records) => {
                    assert!(whole.starts_with(&records) && text[end - 1] == b'\n', "{format:?} {end}")
                }
                Err(error) => assert!(error.contains("ends early"), "{format:?} {end}: {error}"),
            }
        }
    }
}

#[test]
fn import_error_names_line() {
    let base64 = "key_base64,value_base64,expires_at_ms\n";
    for (format, text, expected) in [
        (
            Format::Jsonl,
            "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"a\"}\n",
            "line 2: it needs either value",
        ),
        (
            Format::Jsonl,
            "{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"b\"}\n",
            "line 1: it needs either key",
        ),
        (Format::Jsonl, "{\"key\":\"a\",\"value_base64\":\"?\"}\n", "line 1: value_base64 is not base64"),
        (Format::Jsonl, "{\"k\":1}\n", "line 1: unknown field"),
        (Format::Csv, "a,b\n", "line 1: the columns have to be"),
        (Format::Csv, "", "ends early"),
        (Format::Csv, &format!("{base64}YQ==,YQ==\n"), "line 2: it has other columns"),
        (Format::Csv, &format!("{base64}YQ==,Y,\n"), "line 2: the value is not encoded"),
        (Format::Csv, &format!("{base64}YQ==,YQ==,x\n"), "line 2: the time of expiry"),
        (Format::Csv, "key_hex,value_hex,expires_at_ms\n616,61,\n", "line 2: the key is not encoded"),
        (Format::Resp, "*1\r\n$8\r\nFLUSHALL\r\n", "line 2: only SET"),
        (Format::Resp, "SET a b\r\n", "line 1: expected '*' and a number of at most 5"),
        (Format::Resp, "*3\r\n$99999999999\r\n", "line 2: expected '$' and a number"),
        (Format::Resp, "*3\r\n$3\r\nSETX\r\n", "line 2: the previous word is longer"),
    ] {
        let error = read(format, text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
