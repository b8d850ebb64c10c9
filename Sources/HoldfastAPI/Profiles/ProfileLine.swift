public import Bucketing
import JSON
public import Storage

/// Profiles as lines of NDJSON, as exports and imports have them.
public enum ProfileLine {
    /// Why a line is no profile.
    public struct Refusal: Error, CustomStringConvertible {
        public let description: String
    }

    /// One line, with its line feed.
    ///
    /// - Parameter detail: whether each assignment is written with where it came from.
    public static func encode(_ userID: Identifier, _ profile: ProfileRecord, detail: Bool = false) -> [UInt8] {
        var bytes = ProfileJSON.encode(userID, profile, detail: detail)
        bytes.append(UInt8(ascii: "\n"))
        return bytes
    }

    /// The change that saves the profile of a line; `nil` for an empty line.
    ///
    /// - Throws: ``Refusal``, naming the member that is wrong.
    public static func change(
        from line: UnsafeRawBufferPointer, onConflict rule: ProfileChange.ConflictRule
    ) throws(Refusal) -> ProfileChange? {
        do throws(Problem) {
            return LineSplitter.isBlank(line) ? nil : try parse(line, rule)
        } catch {
            let place = error.pointer.map { $0.string.isEmpty ? "" : ", at \($0)" } ?? ""
            throw Refusal(description: error.detail + place)
        }
    }

    static func parse(
        _ line: UnsafeRawBufferPointer, _ rule: ProfileChange.ConflictRule
    ) throws(Problem) -> ProfileChange {
        let body = try ProfileBody(line, called: "the line")
        return ProfileChange(userID: body.userID, operation: .merge(body.assignments, onConflict: rule))
    }
}
