import Bucketing
import Definitions
import JSON
import Storage

/// A fast parser for the form of nearly all profiles: only the members `user_id` and `experiment_bucket_map`, and ASCII
/// ids without escapes. Unlike ``JSONParser``, the scanner does not build a tree of values.
///
/// The scanner may refuse any input. The caller then uses the parser, which accepts the input or describes the fault.
/// An input that the scanner accepts must have the same result with the parser.
struct PlainProfileScanner {
    private let bytes: UnsafeRawBufferPointer
    private var position = 0

    /// Parses a profile; see ``ProfileInput/init(_:called:pathUserID:)``.
    ///
    /// - Returns: `nil` if the body is invalid or has another form.
    static func scan(_ bytes: UnsafeRawBufferPointer, pathUserID: Identifier? = nil) -> ProfileInput? {
        var scanner = PlainProfileScanner(bytes: bytes)
        return scanner.profile(of: pathUserID)
    }

    private init(bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    /// Reads the whole body; `nil` if it is invalid or has another form.
    private mutating func profile(of pathUserID: Identifier?) -> ProfileInput? {
        var userID: Identifier?
        var assignments: ExperimentBucketMap?
        guard take("{") else { return nil }
        repeat {
            // No known member has a longer name.
            guard let key = text(atMost: 32), take(":") else { return nil }
            if userID == nil, key.hasSameBytes(as: "user_id") {
                // The maximum length of a user id; see ``ProfileInput/checkUserID(_:at:)``.
                guard let text = text(atMost: 1_024) else { return nil }
                userID = Identifier(String(decoding: text, as: UTF8.self))
            } else if assignments == nil, key.hasSameBytes(as: "experiment_bucket_map") {
                guard let map = map() else { return nil }
                assignments = map
            } else {
                return nil
            }
        } while take(",")
        guard take("}"), position == bytes.count else { return nil }
        guard let assignments, let userID = userID ?? pathUserID else { return nil }
        guard pathUserID == nil || pathUserID == userID else { return nil }
        return ProfileInput(userID: userID, assignments: assignments)
    }

    /// Reads an `experiment_bucket_map`.
    private mutating func map() -> ExperimentBucketMap? {
        guard take("{") else { return nil }
        if take("}") { return .empty }
        var entries: [ExperimentBucketMap.Entry] = []
        entries.reserveCapacity(4)
        repeat {
            guard let experimentID = text(atMost: 255), NameRule.isExperimentID(experimentID), take(":"),
                take("{"), let member = text(atMost: 32), member.hasSameBytes(as: "variation_id"), take(":"),
                let variationID = text(atMost: 255), take("}")
            else { return nil }
            entries.append(
                .init(
                    experimentID: Identifier(String(decoding: experimentID, as: UTF8.self)),
                    variationID: Identifier(String(decoding: variationID, as: UTF8.self))))
        } while take(",")
        guard take("}") else { return nil }
        let map = ExperimentBucketMap(entries)
        // An experiment that occurs twice is an error, which the parser reports.
        return map.entries.count == entries.count ? map : nil
    }

    /// Reads a string of 1 to `limit` bytes and the white space after it; `nil` unless it is ASCII without escapes.
    private mutating func text(atMost limit: Int) -> UnsafeRawBufferPointer? {
        guard take("\"") else { return nil }
        guard let end = bytes.firstJSONEscape(from: position), bytes[end] == UInt8(ascii: "\"") else { return nil }
        let text = UnsafeRawBufferPointer(rebasing: bytes[position..<end])
        guard (1...limit).contains(text.count), text.isASCII else { return nil }
        position = end + 1
        skipSpaces()
        return text
    }

    /// Reads a character, and the white space after it unless it begins a string.
    ///
    /// - Returns: whether the character was there.
    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard position < bytes.count, bytes[position] == UInt8(ascii: character) else { return false }
        position += 1
        let isBeginOfString = character == "\""
        if !isBeginOfString { skipSpaces() }
        return true
    }

    private mutating func skipSpaces() {
        while position < bytes.count {
            switch bytes[position] {
            case 0x20, 0x09, 0x0A, 0x0D: position += 1
            default: return
            }
        }
    }
}
