import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// Reads the body, the parameters of the path, and the query of a request, and checks them.
extension Request {
    // MARK: Body

    /// Passes the body to a function, expanded if it is compressed by gzip.
    ///
    /// - Parameter limit: the maximum length of the expanded body in bytes.
    /// - Throws: 400 if the compressed body is malformed or incomplete, 413 if the expanded body exceeds the limit, 503
    ///   if the server cannot load zlib.
    func withExpandedBody<Value>(
        limit: Int, _ body: (UnsafeRawBufferPointer) throws(CoreError) -> Value
    ) throws(CoreError) -> Value {
        let isCompressed = contentCoding == "gzip"
        return try withBody { bytes throws(CoreError) -> Value in
            guard isCompressed else { return try body(bytes) }
            switch Gzip.expand(bytes, limit: limit) {
            case .expanded(let expanded):
                let result = expanded.withUnsafeBytes { bytes in
                    Result { () throws(CoreError) in try body(bytes) }
                }
                return try result.get()
            case .unavailable:
                throw CoreError(
                    .unavailable,
                    "the body must not be compressed: this server needs zlib for that (apt-get install zlib1g)")
            case .malformed: throw CoreError(.invalid, "the body must be whole and compressed by gzip")
            case .tooLong:
                throw CoreError(.tooLarge, "the body must have at most \(limit) bytes when it is expanded")
            }
        }
    }

    // MARK: Path and project

    /// Returns the `{user_id}` of the path, its first parameter.
    func userID() throws(CoreError) -> Identifier {
        guard let text = parameter(0) else { throw CoreError(.invalid, "the user id in the path must be UTF-8") }
        return try ProfileInput.checkUserID(text, at: nil)
    }

    /// Returns the `{key}` of an experiment or a flag in the path, its first parameter.
    func key() throws(CoreError) -> String {
        guard let text = parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        return try NameRule.checkKey(text, at: nil)
    }

    /// Parses the version of a datafile.
    ///
    /// - Parameter name: the name of the parameter, for errors.
    static func datafileVersion(_ text: String?, _ name: String) throws(CoreError) -> Int64 {
        guard let version = text.flatMap({ Int64($0) }), version > 0 else {
            throw CoreError(.invalid, "\(name) must be a whole number of at least 1")
        }
        return version
    }

    /// The SDK key in the header `X-Optimizely-SDK-Key`. It applies where neither the path nor the body names a
    /// project.
    var sdkKey: String? { field("x-optimizely-sdk-key") }

    /// Returns the name of an attribute or a segment in the path: 1 to 255 bytes without control characters.
    func definedName() throws(CoreError) -> Identifier {
        guard let name = parameter(0), (1...255).contains(name.utf8.count), name.utf8.allSatisfy({ $0 >= 0x20 }) else {
            throw CoreError(.invalid, "the name in the path must be 1 to 255 bytes of UTF-8 without control characters")
        }
        return Identifier(name)
    }

    // MARK: Query

    /// Returns the query as a dictionary.
    ///
    /// - Throws: 400 if a parameter is not one of `known`, occurs twice, or is not UTF-8.
    func query(knowing known: [String]) throws(CoreError) -> [String: String] {
        guard hasQuery else { return [:] }
        guard let items = queryItems() else { throw CoreError(.invalid, "the query must be UTF-8") }
        var values: [String: String] = [:]
        for item in items {
            guard known.contains(item.name) else {
                let list = known.sorted().map { "`\($0)`" }.joined(separator: ", ")
                let names = known.isEmpty ? "" : " but \(list)"
                let hint = Spelling.nearest(to: item.name, among: known).map { "; did you mean `\($0)`?" } ?? ""
                throw CoreError(.invalid, "the query must have no parameters\(names); got `\(item.name)`\(hint)")
            }
            guard values.updateValue(item.value, forKey: item.name) == nil else {
                throw CoreError(.invalid, "a query parameter must occur once; got `\(item.name)` twice")
            }
        }
        return values
    }

    /// Returns the `on_conflict` of a query; the default is `replace`.
    static func conflictRule(_ query: [String: String]) throws(CoreError) -> ProfileChange.ConflictRule {
        switch query["on_conflict"] {
        case nil, "replace": return .replace
        case "keep": return .keep
        case let text?: throw CoreError(.invalid, "`on_conflict` must be 'replace' or 'keep'; got '\(text)'")
        }
    }

    /// Returns the `moves` of the query: whether a change may give enrolled users another variation. The default is
    /// `refuse`.
    func movePolicy() throws(CoreError) -> ProjectEditor.MovePolicy {
        try Self.movePolicy(query(knowing: ["moves"]))
    }

    /// Returns the `moves` of a query that has been read already, because it may have other parameters.
    static func movePolicy(_ query: [String: String]) throws(CoreError) -> ProjectEditor.MovePolicy {
        guard let text = query["moves"] else { return .refuse }
        guard let policy = ProjectEditor.MovePolicy(rawValue: text) else {
            throw CoreError(.invalid, "`moves` must be 'allow' or 'refuse'; got '\(text)'")
        }
        return policy
    }

    /// Returns the `share` of a query: whether a change may use experiment ids of other projects, whose users it then
    /// shares. The default is `refuse`.
    ///
    /// - Throws: 400 for another value; 403 for `allow` if the token is bound to some projects.
    static func sharePolicy(_ query: [String: String], _ call: Call) throws(CoreError) -> SharePolicy {
        switch query["share"] {
        case nil, "refuse": return .refuse(call.access)
        case "allow":
            guard call.access == .all else {
                throw CoreError(
                    .forbidden, "`share=allow` needs a token for all projects; this one is bound to some")
            }
            return .allow
        case let text?: throw CoreError(.invalid, "`share` must be 'allow' or 'refuse'; got '\(text)'")
        }
    }

    /// Returns the `limit` of a streamed list: at least 1; unlimited by default.
    static func limit(_ query: [String: String]) throws(CoreError) -> Int {
        guard let text = query["limit"] else { return .max }
        guard let number = Int(text), number > 0 else {
            throw CoreError(.invalid, "`limit` must be a whole number greater than 0; got '\(text)'")
        }
        return number
    }

    /// Returns the `limit` of a page: 1 to `max`; the default is 100.
    static func pageLimit(_ query: [String: String], max: Int = 1_000) throws(CoreError) -> Int {
        guard let limit = Int(query["limit"] ?? "100"), (1...max).contains(limit) else {
            throw CoreError(.invalid, "`limit` must be a whole number from 1 to \(max); got '\(query["limit"] ?? "")'")
        }
        return limit
    }

    /// Returns a query parameter that is `true` or `false`; the default is `false`.
    static func flag(_ name: String, _ query: [String: String]) throws(CoreError) -> Bool {
        switch query[name] {
        case nil, "false": return false
        case "true": return true
        case let text?: throw CoreError(.invalid, "`\(name)` must be 'true' or 'false'; got '\(text)'")
        }
    }
}
