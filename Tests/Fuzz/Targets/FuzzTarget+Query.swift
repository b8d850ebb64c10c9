@testable import HTTPServer

extension FuzzTarget {
    /// Encoding and decoding a text, or writing and parsing a query, gives the original.
    static let query = FuzzTarget(name: "query") { bytes in
        for plusIsSpace in [false, true] {
            let decoded = bytes.withUnsafeBytes { PercentDecoding.decode($0, plusIsSpace: plusIsSpace) }
            guard let decoded else { continue }
            try expectSame(again(decoded, plusIsSpace), decoded, "encoded and decoded again")
        }
        guard let items = bytes.withUnsafeBytes({ QueryItems.parse($0) }) else { return }
        let written = items.map { "\(encoded($0.name))=\(encoded($0.value))" }.joined(separator: "&")
        let read = Array(written.utf8).withUnsafeBytes { QueryItems.parse($0) } ?? []
        try expectSame(read.map { [$0.name, $0.value] }, items.map { [$0.name, $0.value] }, "written and read again")
        if let text = String(validating: bytes, as: UTF8.self) { _ = TargetText(text) }
    }

    private static func again(_ text: String, _ plusIsSpace: Bool) -> String? {
        Array(encoded(text).utf8).withUnsafeBytes { PercentDecoding.decode($0, plusIsSpace: plusIsSpace) }
    }

    private static func encoded(_ text: String) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        let bytes = text.utf8.flatMap { [UInt8(ascii: "%"), digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
        return String(decoding: bytes, as: UTF8.self)
    }
}
