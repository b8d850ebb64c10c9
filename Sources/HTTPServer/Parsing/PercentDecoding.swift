/// Percent-decoding (RFC 3986 §2.1) of parts of a target whose `%` triplets have been checked.
package enum PercentDecoding {
    /// The decoded text; `nil` if it is not UTF-8.
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
