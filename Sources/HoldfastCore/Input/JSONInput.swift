public import Definitions
public import JSON

/// Parses the JSON texts that callers send. A key that occurs twice is refused.
public enum JSONInput {
    private static let parser = JSONParser(maximumDepth: 64, duplicateKeys: .refused)

    /// Parses JSON.
    ///
    /// - Parameter name: the name of the text in an error.
    public static func parse(_ bytes: UnsafeRawBufferPointer, called name: String = "the body") throws(CoreError)
        -> JSONValue
    {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw CoreError(error, in: name)
        }
    }

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
            refusal.pointer = nil
            throw refusal
        }
    }
}
