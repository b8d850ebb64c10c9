/// A `name: value` line of a header or of a chunked body's trailer (RFC 9112 §5).
enum FieldLine {
    /// Parses a line.
    ///
    /// - Parameters:
    ///   - line: the position of the line without its CR LF.
    ///   - bytes: the bytes to which all positions refer.
    static func parse(
        _ line: Range<Int>, _ bytes: UnsafeRawBufferPointer
    ) throws(RequestFailure) -> RequestHead.Field {
        var position = line.lowerBound
        while position < line.upperBound, ByteClass.isToken(bytes[position]) { position += 1 }
        guard position < line.upperBound, bytes[position] == ByteClass.colon, position > line.lowerBound else {
            throw badName(line, stoppedAt: position, bytes)
        }
        let name = line.lowerBound..<position
        var start = position + 1
        var end = line.upperBound
        while start < end, isBlank(bytes[start]) { start += 1 }
        while end > start, isBlank(bytes[end - 1]) { end -= 1 }
        for index in start..<end where !ByteClass.isFieldValue(bytes[index]) {
            throw RequestFailure(
                .badRequest, "a header field's value must not contain control characters; got the byte \(bytes[index])")
        }
        return RequestHead.Field(name: name, value: start..<end)
    }

    /// Returns the error for a line that does not begin with a name and a colon.
    ///
    /// - Parameter position: the first byte that cannot belong to a name.
    private static func badName(
        _ line: Range<Int>, stoppedAt position: Int, _ bytes: UnsafeRawBufferPointer
    ) -> RequestFailure {
        if isBlank(bytes[line.lowerBound]) {
            return RequestFailure(
                .badRequest, "a header line must begin with a name; got white space (folded lines are not supported)")
        }
        if position < line.upperBound, isBlank(bytes[position]) {
            return RequestFailure(.badRequest, "a header name must be followed by a colon; got white space")
        }
        return RequestFailure(.badRequest, "a header line must begin with a name and a colon")
    }

    @inline(__always)
    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == ByteClass.space || byte == ByteClass.tab
    }
}
