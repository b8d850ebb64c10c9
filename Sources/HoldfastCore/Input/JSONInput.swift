public import Definitions
public import JSON

/// Parses the JSON texts that callers send. An object with two equal keys is refused, because some parsers use the
/// first value and others the last.
public enum JSONInput {
    /// More than 64 nested arrays and objects are refused.
    private static let parser = JSONParser(maximumDepth: 64, duplicateKeys: .refused)

    /// Parses JSON.
    ///
    /// - Parameter name: the name of the text, for errors.
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
    ///
    /// - Throws: 400 with the position of the fault.
    public static func parse(_ bytes: [UInt8]) throws(CoreError) -> JSONValue {
        do throws(JSONError) {
            return try parser.parse(bytes)
        } catch {
            throw CoreError(error, in: "the body")
        }
    }

    /// Parses the JSON value of a query parameter.
    ///
    /// - Throws: 400 with the position of the fault as text, but without a pointer, which would refer to the body.
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
