/// An id or key of the server, as the key of a dictionary. It is compared by its UTF-8 bytes, as on the server.
///
/// `String.==` compares by canonical equivalence: for it `é` as one code point equals `é` as a letter with an accent,
/// but the server knows them as two users.
struct Key: Hashable, Sendable {
    let string: String

    init(_ string: String) {
        self.string = string
    }

    static func == (left: Key, right: Key) -> Bool {
        left.string.hasSameBytes(as: right.string)
    }

    func hash(into hasher: inout Hasher) {
        var string = string
        string.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

extension String {
    /// Whether two strings have the same UTF-8 bytes; see ``Key``.
    func hasSameBytes(as other: String) -> Bool {
        // `nil` if one of the strings is not contiguous, as a bridged string on Darwin.
        let isSame = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                left.count == right.count && left.indices.allSatisfy { left[$0] == right[$0] }
            }
        }
        return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
    }
}
