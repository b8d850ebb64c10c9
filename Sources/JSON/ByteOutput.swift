/// A byte buffer for many small appends, as ``JSONWriter`` makes them. It reserves zeroed space ahead and writes into
/// that space through a pointer. `Array.append` would check and update the array for each byte.
struct ByteOutput: Sendable {
    /// The output up to `count`, then zeros.
    private var storage: [UInt8]
    private(set) var count: Int

    /// - Parameters:
    ///   - bytes: the beginning of the output.
    ///   - capacity: the bytes to reserve for what follows.
    init(_ bytes: consuming [UInt8], capacity: Int) {
        count = bytes.count
        if count == 0 {
            storage = [UInt8](repeating: 0, count: capacity)
        } else {
            storage = bytes
            grow(by: capacity)
        }
    }

    consuming func finish() -> [UInt8] {
        storage.removeLast(storage.count - count)
        return storage
    }

    mutating func append(_ byte: UInt8) {
        write(1) { $0[0] = byte }
    }

    mutating func append(_ bytes: UnsafeBufferPointer<UInt8>) {
        write(bytes.count) { $0.copy(bytes) }
    }

    /// Appends a JSON string.
    ///
    /// - Parameter following: a byte to append after it.
    mutating func appendQuoted(_ text: UnsafeBufferPointer<UInt8>, and following: UInt8? = nil) {
        if UnsafeRawBufferPointer(text).firstJSONEscape() == nil {
            appendQuoted(plain: text, and: following)
        } else {
            appendEscaped(text, following)
        }
    }

    /// Appends a JSON string that contains nothing to escape.
    mutating func appendQuoted(plain text: UnsafeBufferPointer<UInt8>, and following: UInt8? = nil) {
        write(text.count + (following == nil ? 2 : 3)) { target in
            target[0] = UInt8(ascii: "\"")
            (target + 1).copy(text)
            target[text.count + 1] = UInt8(ascii: "\"")
            if let following { target[text.count + 2] = following }
        }
    }

    /// Appends bytes as a JSON string in the encoding of ``Base64URL``.
    mutating func appendBase64URL(_ bytes: UnsafeRawBufferPointer) {
        let (whole, rest) = bytes.count.quotientAndRemainder(dividingBy: 3)
        // Three bytes become four characters. Without padding, one remaining byte becomes two characters, and two
        // become three.
        let length = whole * 4 + (rest == 0 ? 0 : rest + 1)
        write(length + 2) { target in
            target[0] = UInt8(ascii: "\"")
            target[length + 1] = UInt8(ascii: "\"")
            Base64URL.alphabet.withUnsafeBufferPointer { alphabet in
                var (place, index) = (1, 0)
                while index < bytes.count {
                    var bits = UInt32(bytes[index]) << 16
                    if index + 1 < bytes.count { bits |= UInt32(bytes[index + 1]) << 8 }
                    if index + 2 < bytes.count { bits |= UInt32(bytes[index + 2]) }
                    let digits = min(4, length + 1 - place)
                    for digit in 0..<digits {
                        target[place + digit] = alphabet[Int(bits >> UInt32(18 - 6 * digit) & 63)]
                    }
                    place += digits
                    index += 3
                }
            }
        }
    }

    /// Appends a JSON string that has at least one character to escape.
    private mutating func appendEscaped(_ text: UnsafeBufferPointer<UInt8>, _ following: UInt8?) {
        append(UInt8(ascii: "\""))
        var runStart = 0
        while let index = UnsafeRawBufferPointer(text).firstJSONEscape(from: runStart) {
            append(UnsafeBufferPointer(rebasing: text[runStart..<index]))
            appendEscape(text[index])
            runStart = index + 1
        }
        append(UnsafeBufferPointer(rebasing: text[runStart...]))
        append(UInt8(ascii: "\""))
        if let following { append(following) }
    }

    /// Appends the escape of a quote, a backslash or a control character: the short form if JSON has one, else
    /// `\u00XX`.
    private mutating func appendEscape(_ byte: UInt8) {
        append(UInt8(ascii: "\\"))
        switch byte {
        case 0x08: append(UInt8(ascii: "b"))
        case 0x09: append(UInt8(ascii: "t"))
        case 0x0A: append(UInt8(ascii: "n"))
        case 0x0C: append(UInt8(ascii: "f"))
        case 0x0D: append(UInt8(ascii: "r"))
        case 0..<0x20:
            append(UInt8(ascii: "u"))
            append(UInt8(ascii: "0"))
            append(UInt8(ascii: "0"))
            append(UInt8(ascii: "0") + byte >> 4)
            let low = byte & 0xF
            append(low < 10 ? UInt8(ascii: "0") + low : UInt8(ascii: "a") + (low - 10))
        default: append(byte)
        }
    }

    // MARK: The storage

    /// Makes room for `size` bytes and lets `body` write them.
    ///
    /// - Parameter body: must write exactly `size` bytes.
    @inline(__always)
    private mutating func write(_ size: Int, _ body: (UnsafeMutablePointer<UInt8>) -> Void) {
        if storage.count - count < size { grow(by: size) }
        let end = count
        storage.withUnsafeMutableBufferPointer { bytes in
            if let start = bytes.baseAddress { body(start + end) }
        }
        count = end + size
    }

    /// Doubles the storage, or adds `size` bytes if these are more.
    @inline(never)
    private mutating func grow(by size: Int) {
        // Appends an array, which is copied as a block. `repeatElement` would be copied byte by byte.
        storage.append(contentsOf: [UInt8](repeating: 0, count: max(size, storage.count)))
    }
}

extension UnsafeMutablePointer<UInt8> {
    @inline(__always)
    fileprivate func copy(_ bytes: UnsafeBufferPointer<UInt8>) {
        if let source = bytes.baseAddress { update(from: source, count: bytes.count) }
    }
}
