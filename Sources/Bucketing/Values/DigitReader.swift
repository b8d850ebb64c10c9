/// Takes numbers of fixed width and the marks between them out of a text, as dates and times are written.
package struct DigitReader<Text: Collection<UInt8>> {
    private var rest: Text.SubSequence

    package init(_ text: Text) {
        rest = text[...]
    }

    package var isAtEnd: Bool { rest.isEmpty }

    /// - Returns: `nil` unless so many decimal digits follow.
    package mutating func number(_ width: Int) -> Int? {
        var number = 0
        for _ in 0..<width {
            guard let digit = digit() else { return nil }
            number = number * 10 + digit
        }
        return number
    }

    package mutating func digit() -> Int? {
        guard let byte = rest.first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
        rest = rest.dropFirst()
        return Int(byte - UInt8(ascii: "0"))
    }

    /// Takes the next byte if it is one of these.
    package mutating func skip(_ marks: StaticString) -> Bool {
        taken(marks) != nil
    }

    /// The next byte if it is one of these.
    package mutating func taken(_ marks: StaticString) -> UInt8? {
        guard let byte = rest.first, marks.withUTF8Buffer({ $0.contains(byte) }) else { return nil }
        rest = rest.dropFirst()
        return byte
    }
}
