/// A growable byte buffer that is written at its end and read from its start. The module's only owner of unsafe memory.
///
/// ```
/// 0          head              tail             capacity
/// | consumed | readable (count) | writable       |
/// ```
///
/// Callers count positions from `head`, so they stay valid when the bytes are moved to the front.
struct ByteBuffer: ~Copyable {
    private var storage: UnsafeMutableRawPointer?
    private(set) var capacity = 0
    private var head = 0
    private var tail = 0

    init() {}

    init(capacity: Int) {
        reserve(capacity)
    }

    deinit {
        storage?.deallocate()
    }

    var count: Int {
        @inline(__always) get { tail - head }
    }

    var isEmpty: Bool {
        @inline(__always) get { head == tail }
    }

    /// Makes room for at least `additional` more bytes, by moving or growing.
    @inline(__always)
    mutating func reserve(_ additional: Int) {
        if capacity - tail < additional { makeRoom(additional) }
    }

    /// Moves the readable bytes to the front if that makes enough room, and they fit into the consumed part. Otherwise
    /// grows: moving many bytes for little room would soon be repeated.
    @inline(never)
    private mutating func makeRoom(_ additional: Int) {
        let count = tail - head
        if let storage, capacity - count >= additional, head >= count {
            storage.copyMemory(from: storage + head, byteCount: count)
        } else {
            let newCapacity = max(512, (count + additional).roundedUpToPowerOfTwo)
            let newStorage = UnsafeMutableRawPointer.allocate(byteCount: newCapacity, alignment: 16)
            if let storage {
                newStorage.copyMemory(from: storage + head, byteCount: count)
                storage.deallocate()
            }
            storage = newStorage
            capacity = newCapacity
        }
        head = 0
        tail = count
    }

    @inline(__always)
    func withReadableBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        body(readableBytes)
    }

    /// The readable bytes, valid until the buffer changes.
    var readableBytes: UnsafeRawBufferPointer {
        @inline(__always) get {
            guard let storage else { return UnsafeRawBufferPointer(start: nil, count: 0) }
            return UnsafeRawBufferPointer(start: storage + head, count: tail - head)
        }
    }

    /// Lends the free part. ``commit(_:)`` makes bytes written there readable.
    @inline(__always)
    mutating func withWritableBytes<Result>(_ body: (UnsafeMutableRawBufferPointer) -> Result) -> Result {
        guard let storage else { return body(UnsafeMutableRawBufferPointer(start: nil, count: 0)) }
        return body(UnsafeMutableRawBufferPointer(start: storage + tail, count: capacity - tail))
    }

    /// Makes bytes readable that were written into the free part.
    @inline(__always)
    mutating func commit(_ count: Int) {
        precondition(count >= 0 && count <= capacity - tail)
        tail += count
    }

    /// Drops readable bytes from the start.
    @inline(__always)
    mutating func consume(_ count: Int) {
        precondition(count >= 0 && count <= tail - head)
        head += count
        if head == tail {
            head = 0
            tail = 0
        }
    }

    /// Frees the memory of an empty buffer that has grown beyond `limit` bytes.
    mutating func shrink(to limit: Int) {
        guard isEmpty, capacity > limit else { return }
        storage?.deallocate()
        storage = nil
        capacity = 0
    }

    /// Removes the readable bytes in `range`. The bytes behind the range move down.
    mutating func remove(_ range: Range<Int>) {
        precondition(range.lowerBound >= 0 && range.upperBound <= count)
        guard let storage, !range.isEmpty else { return }
        let behind = count - range.upperBound
        (storage + head + range.lowerBound).copyMemory(from: storage + head + range.upperBound, byteCount: behind)
        tail -= range.count
    }

    /// Moves the readable bytes in `range` down to `position`.
    mutating func move(_ range: Range<Int>, to position: Int) {
        precondition(position >= 0 && position <= range.lowerBound && range.upperBound <= count)
        guard let storage, position < range.lowerBound else { return }
        (storage + head + position).copyMemory(from: storage + head + range.lowerBound, byteCount: range.count)
    }

    @inline(__always)
    mutating func append(_ byte: UInt8) {
        reserve(1)
        storage?.storeBytes(of: byte, toByteOffset: tail, as: UInt8.self)
        tail += 1
    }

    @inline(__always)
    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        reserve(bytes.count)
        if let storage { (storage + tail).copyMemory(from: source, byteCount: bytes.count) }
        tail += bytes.count
    }

    @inline(__always)
    mutating func append(_ bytes: [UInt8]) {
        bytes.withUnsafeBytes { append($0) }
    }

    @inline(__always)
    mutating func append(_ text: StaticString) {
        append(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    /// Appends a number in decimal digits.
    mutating func append(decimal number: Int) {
        // A 64-bit number has at most 20 digits.
        withUnsafeTemporaryAllocation(byteCount: 20, alignment: 1) { digits in
            var rest = number.magnitude
            var position = digits.count
            repeat {
                position -= 1
                digits[position] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
                rest /= 10
            } while rest > 0
            if number < 0 { append(UInt8(ascii: "-")) }
            append(UnsafeRawBufferPointer(rebasing: digits[position...]))
        }
    }

    /// Appends a number in at least `width` hexadecimal digits.
    mutating func append(hexadecimal number: UInt64, width: Int = 1) {
        let digits = max(width, (64 - number.leadingZeroBitCount + 3) / 4)
        reserve(digits)
        withWritableBytes { target in
            var rest = number
            for index in (0..<digits).reversed() {
                let nibble = UInt8(truncatingIfNeeded: rest & 0xF)
                target[index] = nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") + nibble - 10
                rest >>= 4
            }
        }
        commit(digits)
    }
}

extension Int {
    fileprivate var roundedUpToPowerOfTwo: Int {
        self <= 1 ? 1 : 1 << (Int.bitWidth - (self - 1).leadingZeroBitCount)
    }
}
