public import Definitions
public import JSON
import Storage

/// Parses the amount of an event, such as the price of a purchase, for all protocols by which events arrive.
///
/// An amount that cannot be used is an error and does not become 0, because averages would then be wrong without
/// anybody noticing. Only ``OfTags`` uses 0, as Optimizely's SDKs do, and reports the fault.
public enum EventAmount {
    /// Returns the amount of an event in another product's format: the first of `members` that is present, or 0 if none
    /// is. Libraries often send amounts as text, so a text such as `"12.5"` counts as a number.
    ///
    /// - Throws: 400 if the member is not a number; 422 if the number is too great or too small to be summed
    ///   (``EventRules/isUsable(value:)``).
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

    /// Returns the value of a text that is a JSON number; `nil` for any other text.
    private static func number(in text: String) -> JSONValue? {
        guard text.utf8.count <= longestNumber, let value = try? JSONParser().parse(text), value.double != nil else {
            return nil
        }
        return value
    }

    /// The maximum length of a number as text, in bytes. It bounds the time of parsing. The shortest text of any
    /// `Double` has less than half this length.
    private static let longestNumber = 64

    /// The amount in the reserved tags of Optimizely's SDKs: `value`, or else `revenue`.
    public struct OfTags {
        /// The `value`, or else the `revenue` in cents; 0 if neither can be used.
        public private(set) var value = 0.0
        /// The fault of the first tag that was ignored. The event itself is still accepted, as by the SDKs.
        public private(set) var fault: CoreError?

        public init(_ tags: JSONObject, at place: JSONPointer) {
            for member in ["value", "revenue"] where !(tags[member] ?? .null).isNull {
                do throws(CoreError) {
                    value = try Self.amount(in: member, of: tags, at: place)
                    return
                } catch {
                    fault = fault ?? error
                }
            }
        }

        /// Returns the amount in a tag.
        ///
        /// - Throws: 400 or 422 if the tag cannot be used.
        private static func amount(
            in member: String, of tags: JSONObject, at place: JSONPointer
        ) throws(CoreError) -> Double {
            let amount = try EventAmount.first(of: [member], in: tags, at: place)
            guard member != "revenue" || amount == amount.rounded() else {
                throw CoreError(
                    .invalid, "`revenue` must be a whole number of cents; got \(amount)", at: place.appending(member))
            }
            return amount
        }
    }
}
