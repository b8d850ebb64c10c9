public import Definitions
import JSON

/// Reads profiles from a stream of bytes in the format of another system. The bytes may arrive in pieces of any size.
/// At most one element of the input is kept in memory.
///
/// The formats are ``ProfileLines`` (Holdfast's own), ``RedisProfiles`` (Optimizely Agent), ``DelimitedProfiles`` (CSV
/// and Cassandra) and ``GrowthBookProfiles``.
public protocol ProfileReader {
    /// Reads the next bytes, and reports every element that is complete.
    mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void)

    /// Ends the stream, and reports the last element.
    mutating func end(_ report: (ImportedElement) -> Void)

    /// A sentence about each kind of input that was skipped on purpose. The sentences are complete after ``end(_:)``.
    var notes: [String] { get }
}

extension ProfileReader {
    public var notes: [String] { [] }
}

/// One element of the input of an import, such as a line or a record.
public struct ImportedElement {
    /// The profile of an element, or the error because of which it was refused.
    public enum Content {
        case profile(ProfileInput)
        case refused(CoreError)
    }

    /// The position in the input at which an element begins.
    public struct Place: Comparable, Sendable, CustomStringConvertible {
        /// The number of the line, from 1.
        public var line: Int
        /// The number of the element in an array, from 1; `nil` in formats without an array. The line alone does not
        /// identify the element, because the whole array may be on one line.
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

    /// Creates an element with the profile that a function parses, or with its error.
    init(line: Int, _ parse: () throws(CoreError) -> ProfileInput) {
        place = Place(line: line)
        do throws(CoreError) {
            content = .profile(try parse())
        } catch {
            content = .refused(error)
        }
    }

    /// The maximum length of an element in bytes. It bounds the memory, because a reader keeps one element.
    public static let lengthLimit = 1 << 20

    /// Returns an element that is refused because of its length.
    ///
    /// - Parameter name: the kind of element for the error, such as "a line".
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

    /// Reports the profile of a line, unless it is blank.
    private static func take(_ line: Int, _ text: UnsafeRawBufferPointer?, _ report: (ImportedElement) -> Void) {
        guard let text else { return report(.tooLong(line: line, "a line")) }
        guard !LineSplitter.isBlank(text) else { return }
        report(ImportedElement(line: line) { () throws(CoreError) in try ProfileInput(line: text) })
    }
}
