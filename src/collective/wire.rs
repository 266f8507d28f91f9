//! Numbers and texts as bytes, for messages between processes of one build.

/// A message as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// A whole number.
    pub fn count(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    /// A number, bit by bit.
    pub fn number(&mut self, number: f64) {
        self.0.extend(number.to_bits().to_le_bytes());
    }

    /// Numbers and how many there are.
    pub fn numbers(&mut self, numbers: &[f64]) {
        self.count(numbers.len());
        for number in numbers {
            self.number(*number);
        }
    }

    /// Yes or no.
    pub fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    /// Bytes and how many there are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// A message as it is read. What is asked for past its end is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn eight(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A whole number.
    pub fn count(&mut self) -> Option<usize> {
        self.eight()?.try_into().ok()
    }

    /// A number.
    pub fn number(&mut self) -> Option<f64> {
        self.eight().map(f64::from_bits)
    }

    /// Numbers.
    pub fn numbers(&mut self) -> Option<Vec<f64>> {
        let count = self.count()?;
        let bytes = self.take(count.checked_mul(8)?)?;
        let mut own = Reader(bytes);
        (0..count).map(|_| own.number()).collect()
    }

    /// Yes or no.
    pub fn flag(&mut self) -> Option<bool> {
        self.take(1).map(|byte| byte[0] != 0)
    }

    /// Bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_bit_by_bit() {
        let numbers = [0.1, -0.0, f64::NAN, f64::INFINITY, 5e-324];
        let mut writer = Writer::new();
        writer.flag(true);
        writer.numbers(&numbers);
        writer.bytes("straße".as_bytes());
        writer.count(usize::MAX);
        let message = writer.finish();
        let mut reader = Reader::new(&message);
        assert_eq!(reader.flag(), Some(true));
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&reader.numbers().unwrap()), bits(&numbers));
        assert_eq!(reader.text().as_deref(), Some("straße"));
        assert_eq!(reader.count(), Some(usize::MAX));
        assert_eq!(reader.flag(), None);
    }

    #[test]
    fn a_message_that_is_cut_off_has_no_answer() {
        let mut writer = Writer::new();
        writer.numbers(&[1.0, 2.0]);
        let message = writer.finish();
        for length in 0..message.len() {
            assert_eq!(Reader::new(&message[..length]).numbers(), None);
        }
    }
}
