extension JSONReader {
    /// Reads a number from its sign or first digit to its last one.
    mutating func number() throws(JSONError) -> JSONValue {
        let start = position
        let isNegative = current == UInt8(ascii: "-")
        if isNegative { position += 1 }
        var isWhole = true
        let firstDigit = position
        let negated = try digits()
        if position - firstDigit > 1, bytes[firstDigit] == UInt8(ascii: "0") {
            throw JSONError("expected a number without leading zeros", offset: firstDigit)
        }
        if current == UInt8(ascii: ".") {
            isWhole = false
            position += 1
            _ = try digits()
        }
        if current == UInt8(ascii: "e") || current == UInt8(ascii: "E") {
            isWhole = false
            position += 1
            if current == UInt8(ascii: "+") || current == UInt8(ascii: "-") { position += 1 }
            _ = try digits()
        }
        if isWhole, let negated, isNegative || negated > .min {
            return .integer(isNegative ? negated : -negated)
        }
        return .number(try double(from: start))
    }

    /// Reads at least one digit. Returns their value times -1, or `nil` if it exceeds 64 bits.
    private mutating func digits() throws(JSONError) -> Int64? {
        let start = position
        var value: Int64? = 0
        while case let byte = current, byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") {
            if let former = value {
                let (tens, tensOverflow) = former.multipliedReportingOverflow(by: 10)
                let (sum, sumOverflow) = tens.subtractingReportingOverflow(Int64(byte - UInt8(ascii: "0")))
                value = tensOverflow || sumOverflow ? nil : sum
            }
            position += 1
        }
        guard position > start else { throw failure("expected a digit") }
        return value
    }

    private func double(from start: Int) throws(JSONError) -> Double {
        let text = String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<position]), as: UTF8.self)
        guard let value = Double(text), value.isFinite else {
            throw JSONError("expected a number that a double can hold", offset: start)
        }
        return value
    }
}
