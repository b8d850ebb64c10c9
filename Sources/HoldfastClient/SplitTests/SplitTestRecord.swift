import Foundation

/// What is kept of one user's part in one test.
struct SplitTestRecord: Codable, Equatable {
    let assignment: SplitTestAssignment

    /// Whether the exposure to this assignment has been reported.
    var isExposed = false

    init(_ assignment: SplitTestAssignment) {
        self.assignment = assignment
    }

    /// Reads what ``text()`` wrote; nil for anything else.
    init?(text: String) {
        guard let record = try? JSONDecoder().decode(SplitTestRecord.self, from: Data(text.utf8)) else { return nil }
        self = record
    }

    func text() throws -> String {
        String(decoding: try JSONEncoder().encode(self), as: UTF8.self)
    }

    /// The key under which a storage has a user's record: ASCII, and different for any two users and tests.
    static func storageKey(userID: String, testKey: String) -> String {
        "holdfast/split-test/\(escaped(testKey))/\(escaped(userID))"
    }

    private static func escaped(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                result.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                result += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }
        return result
    }
}
