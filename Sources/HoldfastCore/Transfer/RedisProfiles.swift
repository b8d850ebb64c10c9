import Definitions
import JSON

/// Reads the user profiles of the Optimizely Agent's Redis service from the output of `redis-cli --raw`: pairs of
/// lines, a key followed by its value. The key is the user id, and the value is the `experiment_bucket_map` as JSON:
///
///     ann
///     {"77":{"variation_id":"78"}}
///
/// A key that contains a line feed spans two lines, so all later pairs would be shifted by a line. The reader notices
/// this when it finds a value in place of a key. It then refuses that value, and begins a new pair with the next line.
public struct RedisProfiles: ProfileReader {
    private var splitter = LineSplitter(limit: ImportedElement.lengthLimit)
    /// The key whose value is expected next; `nil` if a key is expected.
    private var key: Key?

    /// A line that was taken as a key.
    fileprivate struct Key {
        let line: Int
        /// `nil` if the line was too long.
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

    /// Takes the next line: a key, or the value of the last key.
    private static func take(
        _ line: Int, _ text: UnsafeRawBufferPointer?, _ last: inout Key?, _ report: (ImportedElement) -> Void
    ) {
        guard let key = last else {
            // `redis-cli --raw` prints an empty line after an error.
            if text.map({ !LineSplitter.isBlank($0) }) ?? true { last = Key(line: line, text: text.map { Array($0) }) }
            return
        }
        guard !isShifted(key.text, text) else {
            // The preceding line is a value, and is refused. This line is a key, and begins the next pair.
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

    /// Whether the line that was taken as a key is a value, and the next line is not, so that pairs are shifted.
    private static func isShifted(_ key: [UInt8]?, _ value: UnsafeRawBufferPointer?) -> Bool {
        guard let key, let value else { return false }
        let brace = UInt8(ascii: "{")
        guard key.first == brace, value.first != brace else { return false }
        return key.withUnsafeBytes { (try? JSONInput.parse($0)) != nil }
    }

    /// Returns the profile of a key and its value.
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
