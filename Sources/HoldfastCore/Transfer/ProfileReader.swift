public import Definitions
import JSON

/// Reads profiles from a stream of bytes in the format of another system. The bytes may arrive in pieces of any size.
/// At most one element of the input is kept in memory.
public protocol ProfileReader {
    /// Reads the next bytes, and reports every element that is complete.
    mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void)

    /// Ends the stream, and reports the last element.
    mutating func end(_ report: (ImportedElement) -> Void)

    /// A line about each kind of input that was skipped on purpose; complete after ``end(_:)``.
    var notes: [String] { get }
}

extension ProfileReader {
    public var notes: [String] { [] }
}

/// One element of the input of an import, such as a line or a record.
public struct ImportedElement {
    public enum Content {
        case profile(ProfileInput)
        case refused(CoreError)
    }

    /// Where an element begins.
    public struct Place: Comparable, Sendable, CustomStringConvertible {
        /// From 1.
        public var line: Int
        /// Of an element of an array, which may be all on one line: its number, from 1.
        public var element: Int?

        public var description: String { (element.map { "element \($0), " } ?? "") + "line \(line)" }

        public static func < (one: Place, other: Place) -> Bool {
            (one.line, one.element ?? 0) < (other.line, other.element ?? 0)
        }
    }

    public var place: Place
    public var content: Content

    init(at place: Place, _ content: Content) {
        self.place = place
        self.content = content
    }

    init(line: Int, _ content: Content) {
        self.init(at: Place(line: line), content)
    }

    init(line: Int, _ parse: () throws(CoreError) -> ProfileInput) {
        place = Place(line: line)
        do throws(CoreError) {
            content = .profile(try parse())
        } catch {
            content = .refused(error)
        }
    }

    /// The maximum length of an element in bytes.
    public static let lengthLimit = 1 << 20

    static func tooLong(line: Int, _ name: String) -> ImportedElement { tooLong(at: Place(line: line), name) }

    static func tooLong(at place: Place, _ name: String) -> ImportedElement {
        ImportedElement(
            at: place, .refused(CoreError(.tooLarge, "\(name) must be at most \(lengthLimit) bytes long")))
    }
}

/// Reads profiles in the format of Holdfast's export, one JSON object per line.
public struct ProfileLines: ProfileReader {
    private var splitter = LineSplitter(limit: ImportedElement.lengthLimit)

    public init() {}

    public mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void) {
        splitter.append(bytes) { Self.take($0, $1, report) }
    }

    public mutating func end(_ report: (ImportedElement) -> Void) {
        splitter.end { Self.take($0, $1, report) }
    }

    private static func take(_ line: Int, _ text: UnsafeRawBufferPointer?, _ report: (ImportedElement) -> Void) {
        guard let text else { return report(.tooLong(line: line, "a line")) }
        guard !LineSplitter.isBlank(text) else { return }
        report(ImportedElement(line: line) { () throws(CoreError) in try ProfileInput(line: text) })
    }
}

/// Reads the user profiles of the Optimizely Agent's Redis service from the output of `redis-cli --raw`: pairs of
/// lines, a key followed by its value. The key is the user id, and the value is the `experiment_bucket_map` as JSON.
public struct RedisProfiles: ProfileReader {
    private var splitter = LineSplitter(limit: ImportedElement.lengthLimit)
    /// The key whose value is expected next. It has no text if its line was too long.
    private var key: Key?

    fileprivate struct Key {
        let line: Int
        let text: [UInt8]?
    }

    public init() {}

    public mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void) {
        var key = key
        splitter.append(bytes) { Self.take($0, $1, &key, report) }
        self.key = key
    }

    public mutating func end(_ report: (ImportedElement) -> Void) {
        var last = key
        splitter.end { Self.take($0, $1, &last, report) }
        key = last
        guard let key else { return }
        let error = CoreError(.invalid, "a line with the value of the key must follow; the input ends")
        report(ImportedElement(line: key.line, .refused(error)))
    }

    private static func take(
        _ line: Int, _ text: UnsafeRawBufferPointer?, _ last: inout Key?, _ report: (ImportedElement) -> Void
    ) {
        guard let key = last else {
            // `redis-cli --raw` prints an empty line after an error.
            if text.map({ !LineSplitter.isBlank($0) }) ?? true { last = Key(line: line, text: text.map { Array($0) }) }
            return
        }
        guard !isOutOfStep(key.text, text) else {
            // The lines are out of step, for example after a key with a line feed. The previous line is refused, and
            // this one begins the next pair.
            let error = CoreError(.invalid, "a key must be a user id, followed by a line with its value; got a value")
            report(ImportedElement(line: key.line, .refused(error)))
            last = Key(line: line, text: text.map { Array($0) })
            return
        }
        last = nil
        guard let name = key.text, let text else { return report(.tooLong(line: key.line, "a line")) }
        // `redis-cli --raw` prints an empty line for a key that has expired since it was listed.
        guard !LineSplitter.isBlank(text) else { return }
        report(ImportedElement(line: key.line) { () throws(CoreError) in try profile(name, text) })
    }

    private static func isOutOfStep(_ key: [UInt8]?, _ value: UnsafeRawBufferPointer?) -> Bool {
        guard let key, let value, key.first == UInt8(ascii: "{"), value.first != UInt8(ascii: "{") else { return false }
        return key.withUnsafeBytes { (try? JSONInput.parse($0)) != nil }
    }

    private static func profile(_ key: [UInt8], _ value: UnsafeRawBufferPointer) throws(CoreError) -> ProfileInput {
        guard let text = String(validating: key, as: UTF8.self) else {
            throw CoreError(.invalid, "a user id must be UTF-8")
        }
        let userID = try ProfileInput.checkUserID(text, at: nil)
        guard value.first == UInt8(ascii: "{") else {
            let found = String(decoding: value, as: UTF8.self).shortened(to: CoreError.longestQuote)
            throw CoreError(.invalid, "the value of a key must be a profile's map as a JSON object; got '\(found)'")
        }
        let map = try JSONInput.parse(value, called: "the value")
        return ProfileInput(userID: userID, assignments: try ProfileInput.assignments(map, at: []))
    }
}
