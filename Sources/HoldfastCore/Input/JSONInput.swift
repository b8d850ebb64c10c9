public import Definitions
public import JSON

/// Parses the JSON texts that callers send. An object in which a key occurs twice is refused, because parsers differ in
/// which value they use.
public enum JSONInput {
    private static let parser = JSONParser(maximumDepth: 64, duplicateKeys: .refused)

    /// Parses JSON.
    ///
    /// - Parameter name: the name of the text in an error.
    /// - Throws: 400 with the position of the fault.
    public static func parse(_ bytes: UnsafeRawBufferPointer, called name: String = "the body") throws(CoreError)
        -> JSONValue
    {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw CoreError(error, in: name)
        }
    }

    /// Parses the JSON of a body.
    public static func parse(_ bytes: [UInt8]) throws(CoreError) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw CoreError(error, in: "the body")
        }
    }

    /// Parses the JSON value of a query parameter.
    public static func parse(parameter name: String, _ text: String) throws(CoreError) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(Array(text.utf8))
        } catch {
            var refusal = CoreError(error, in: "the query parameter `\(name)`")
            // A pointer names a place in the body.
            refusal.pointer = nil
            throw refusal
        }
    }
}
