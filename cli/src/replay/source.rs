//! Where the lines come from: a file or standard input, plain or gzip, whatever bytes they hold.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::progress::Progress;

/// The lines of a log.
pub(super) struct Lines<'a> {
    reader: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
}

/// Servers bound a request's head to less than this; what is longer is no line of a log.
const LONGEST: u64 = 64 * 1024;
const BUFFER: usize = 256 * 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Opens a log: its bytes, and how many there are where that is known.
pub(super) fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    if path.as_os_str() == OsStr::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A pipe has no length.
    Ok((Box::new(file), about.is_file().then_some(about.len())))
}

impl<'a> Lines<'a> {
    /// Gzip is told by its first bytes: names lie, and standard input has none.
    pub(super) fn new(mut source: Box<dyn Read>, progress: &'a Progress) -> io::Result<Lines<'a>> {
        let mut first = Vec::with_capacity(GZIP.len());
        source.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
        let gzip = first == GZIP;
        let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(progress.reading(source)));
        let reader: Box<dyn BufRead + 'a> = if gzip {
            // Several: what log rotation appends to a .gz is a gzip of its own.
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Lines { reader, line: Vec::new() })
    }

    /// The next line without its end; empty if it was too long to be one; none after the last.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read as u64 == LONGEST {
            self.reader.skip_until(b'\n')?;
            self.line.clear();
        }
        Ok(Some(self.line.strip_suffix(b"\r").unwrap_or(&self.line)))
    }
}
