import Glibc

extension String {
    /// The text of bytes; `nil` if they are not UTF-8. To decode and to compare takes a fraction of what the standard
    /// library's validation takes.
    init?(utf8 bytes: UnsafeRawBufferPointer) {
        self.init(decoding: bytes, as: UTF8.self)
        // What was no UTF-8 has been repaired, and is another text than was sent.
        let isUnchanged = withUTF8 { text in
            guard text.count == bytes.count, let text = text.baseAddress, let sent = bytes.baseAddress else {
                return bytes.isEmpty
            }
            return memcmp(text, sent, bytes.count) == 0
        }
        guard isUnchanged else { return nil }
    }
}
