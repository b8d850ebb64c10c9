public import Definitions
public import JSON
import Storage

/// Parses the amount of an event, such as the price of a purchase, for all protocols by which events arrive. An amount
/// that cannot be used is an error, never 0: averages over such events would be wrong, and nobody would notice.
public enum EventAmount {
    /// Returns the amount of an event of another product's protocol: the first of the given members that is present; 0
    /// if none is. Libraries often send amounts as text, so a text that is a JSON number counts as that number.
    ///
    /// - Throws: 400 if the member is not a number; 422 if the number is too great or too small to be summed.
    public static func first(
        of members: [String], in object: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> Double {
        for member in members {
            guard let value = object[member], !value.isNull else { continue }
            return try number(value.string.flatMap(number(in:)) ?? value, member, in: place)
        }
        return 0
    }

    /// Returns the number in a member.
    ///
    /// - Throws: 400 if the value is not a number; 422 if it is too great or too small to be summed.
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

    /// Returns the JSON number that a text consists of; `nil` if it is none.
    private static func number(in text: String) -> JSONValue? {
        guard text.utf8.count <= 64, let value = try? JSONParser().parse(text), value.double != nil else { return nil }
        return value
    }

    /// The amount in the reserved tags of Optimizely's SDKs: `value`, or else `revenue`.
    public struct OfTags {
        /// The `value`, or else the `revenue`, which is a whole number of cents; 0 if neither can be used.
        public private(set) var value = 0.0
        /// The fault of the first tag that was ignored. The event itself is still accepted, as by the SDKs.
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
