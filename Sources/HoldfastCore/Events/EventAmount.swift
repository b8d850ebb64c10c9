public import Definitions
public import JSON
import Storage

/// The rule of what an event's amount may be, for all protocols that bring events. An amount that cannot be used is an
/// error, never 0: averages over such events would be wrong and nobody would notice.
public enum EventAmount {
    /// Returns the first of the members that an event of a published protocol has; 0 if it has none. Libraries often send
    /// amounts as text, so a text that is a JSON number counts as that number.
    ///
    /// - Throws: 400 or 422 if that member is no number that can be summed.
    public static func first(
        of members: [String], in object: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> Double {
        for member in members {
            guard let value = object[member], !value.isNull else { continue }
            return try number(value.string.flatMap(number(in:)) ?? value, member, in: place)
        }
        return 0
    }

    /// Returns a number that can be summed.
    static func number(_ value: JSONValue, _ member: String, in place: JSONPointer) throws(CoreError) -> Double {
        guard let number = value.double else {
            let found = value.string.map { "'\($0.shortened(to: CoreError.longestQuote))'" } ?? value.kind
            throw CoreError(.invalid, "`\(member)` must be a number; got \(found)", at: place.appending(member))
        }
        guard EventRules.isUsable(value: number) else {
            throw CoreError(
                .unprocessable, "`\(member)` must be 0, or between 1e-15 and 1e15 in magnitude; got \(number)",
                at: place.appending(member))
        }
        return number
    }

    private static func number(in text: String) -> JSONValue? {
        guard text.utf8.count <= 64, let value = try? JSONParser().parse(text), value.double != nil else { return nil }
        return value
    }

    /// The amount of the reserved tags of Optimizely's SDKs.
    public struct OfTags {
        /// `value`, or else `revenue`, a whole number of cents; 0 without any.
        public private(set) var value = 0.0
        /// What is wrong with a tag that is ignored. As with the SDKs, the conversion counts all the same.
        public private(set) var fault: CoreError?

        public init(_ tags: JSONObject, at place: JSONPointer) {
            for member in ["value", "revenue"] where !(tags[member] ?? .null).isNull {
                do throws(CoreError) {
                    value = try EventAmount.first(of: [member], in: tags, at: place)
                    guard member != "revenue" || value == value.rounded() else {
                        let found = value
                        value = 0
                        throw CoreError(
                            .invalid, "`revenue` must be a whole number of cents; got \(found)",
                            at: place.appending(member))
                    }
                    return
                } catch {
                    fault = fault ?? error
                }
            }
        }
    }
}
