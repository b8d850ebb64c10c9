import Glibc

/// The parameters of a query in the encoding of HTML forms: `name=value` pairs, separated by `&`.
enum QueryItems {
    /// Parses a query; `nil` if a name or a value is not UTF-8.
    static func parse(_ query: UnsafeRawBufferPointer) -> [(name: String, value: String)]? {
        var items: [(name: String, value: String)] = []
        for pair in query.split(separator: UInt8(ascii: "&")) {
            let separator = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
            let value = pair[min(separator + 1, pair.endIndex)...]
            guard let name = PercentDecoding.decode(.init(rebasing: pair[..<separator]), plusIsSpace: true),
                let value = PercentDecoding.decode(.init(rebasing: value), plusIsSpace: true)
            else { return nil }
            items.append((name, value))
        }
        return items
    }
}

/// Percent-decoding (RFC 3986 §2.1) of a target that is known to be valid.
package enum PercentDecoding {
    /// Decodes a part of a target; `nil` if the result is not UTF-8.
    ///
    /// - Parameter plusIsSpace: whether `+` stands for a space, as in the encoding of HTML forms.
    package static func decode(_ bytes: UnsafeRawBufferPointer, plusIsSpace: Bool = false) -> String? {
        let isPlain = !bytes.contains(ByteClass.percent) && !(plusIsSpace && bytes.contains(UInt8(ascii: "+")))
        if isPlain { return String(utf8: bytes) }
        return withUnsafeTemporaryAllocation(byteCount: max(bytes.count, 1), alignment: 1) { output in
            var length = 0
            var index = 0
            while index < bytes.count {
                var byte = bytes[index]
                if byte == ByteClass.percent, index + 2 < bytes.count,
                    let high = ByteClass.hexadecimalValue(bytes[index + 1]),
                    let low = ByteClass.hexadecimalValue(bytes[index + 2])
                {
                    byte = high << 4 | low
                    index += 2
                } else if plusIsSpace, byte == UInt8(ascii: "+") {
                    byte = ByteClass.space
                }
                output[length] = byte
                length += 1
                index += 1
            }
            return String(utf8: UnsafeRawBufferPointer(rebasing: output[..<length]))
        }
    }
}

extension String {
    /// Decodes UTF-8; `nil` if it is invalid. Decoding and comparing is several times faster than the standard
    /// library's validation.
    init?(utf8 bytes: UnsafeRawBufferPointer) {
        self.init(decoding: bytes, as: UTF8.self)
        // Decoding repairs invalid UTF-8, so the text differs from the bytes.
        let isUnchanged = withUTF8 { text in
            guard text.count == bytes.count, let text = text.baseAddress, let sent = bytes.baseAddress else {
                return bytes.isEmpty
            }
            return memcmp(text, sent, bytes.count) == 0
        }
        guard isUnchanged else { return nil }
    }
}
