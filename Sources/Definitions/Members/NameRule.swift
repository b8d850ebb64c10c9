public import Bucketing
public import JSON

/// The rules for the names of experiments, attributes, goals and the like.
public enum NameRule {
    /// Whether a text has 1 to 255 bytes without NUL.
    public static func admits(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count) && !text.utf8.contains(0)
    }

    /// Returns the key if ``admits(_:)`` is true for it.
    ///
    /// - Throws: 400 if it is not.
    public static func checkKey(_ key: String, at place: JSONPointer?) throws(CoreError) -> String {
        guard admits(key) else {
            throw CoreError(
                .invalid, "a key must be 1 to 255 bytes long, without NUL; got \(key.utf8.count) bytes", at: place)
        }
        return key
    }

    /// Whether a goal may have the name. Stores use names that begin with U+0001 themselves.
    public static func admitsGoal(_ text: String) -> Bool { admits(text) && text.utf8.first != 1 }

    /// Returns the end of an error message: the rule of ``admitsGoal(_:)`` and the size of the refused name.
    public static func ofGoals(_ text: String) -> String {
        "must be 1 to 255 bytes long, without NUL, and not begin with U+0001; got \(text.utf8.count) bytes"
    }

    // MARK: Ids

    /// Returns a text as an experiment id, if it matches `^[a-zA-Z0-9]+$` and has at most 255 bytes.
    ///
    /// - Throws: 400 if it does not.
    @inlinable
    public static func checkExperimentID(
        _ text: String, at pointer: @autoclosure () -> JSONPointer?
    ) throws(CoreError) -> Identifier {
        guard isExperimentID(text.utf8) else {
            throw CoreError(
                .invalid, "an experiment id must consist of ASCII letters and digits; got '\(text)'", at: pointer())
        }
        guard text.utf8.count <= 255 else {
            throw CoreError(
                .invalid, "an experiment id must be at most 255 bytes long; got \(text.utf8.count)", at: pointer())
        }
        return Identifier(text)
    }

    /// Whether bytes are one or more ASCII letters and digits. The length is not limited here.
    @inlinable
    public static func isExperimentID(_ bytes: some Collection<UInt8>) -> Bool {
        !bytes.isEmpty
            && bytes.allSatisfy { byte in
                byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
            }
    }

    /// Whether bytes are a variation id: 1 to 255 bytes of any value.
    @inlinable
    public static func isVariationID(_ bytes: some Collection<UInt8>) -> Bool {
        (1...255).contains(bytes.count)
    }
}
