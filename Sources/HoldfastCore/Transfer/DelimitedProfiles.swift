import Bucketing
public import Definitions
import JSON
import Storage

/// Reads profiles from delimiter-separated values with named columns (RFC 4180), or as Cassandra's `COPY … TO` writes
/// them.
///
/// A record has a user and either one assignment or a whole map:
/// - `user_id`, `experiment_id`, `variation_id`: ids, which are stored unchanged
/// - `user_id`, `experiment`, `variation`: keys or ids of experiments in the database
/// - `user_id`, `experiment_bucket_map`: a JSON object, or a map in the format of CQL
///
/// Further columns are ignored.
public struct DelimitedProfiles: ProfileReader {
    public struct Options: Sendable {
        /// An ASCII character.
        public var delimiter = UInt8(ascii: ",")
        /// Whether a backslash escapes characters, as in the output of `cqlsh`. Otherwise quotation marks are doubled.
        public var escapesByBackslash = false
        /// The names of the columns, if the first record does not have them.
        public var header: [String]?
        /// The names of columns in the input, by the names of ``knownColumns``.
        public var columns: [String: String] = [:]

        public init() {}
    }

    /// The names of the columns that are read.
    public static let knownColumns = [
        "user_id", "experiment_id", "variation_id", "experiment", "variation", "experiment_bucket_map",
    ]

    private var splitter: RecordSplitter
    private var records: Records

    /// - Throws: 400 if the header that was given lacks a column.
    public init(_ options: Options, names: ExperimentNames) throws(CoreError) {
        splitter = RecordSplitter(
            delimiter: options.delimiter, escape: options.escapesByBackslash ? .backslash : .doubledQuote)
        records = Records(options: options, names: names)
        if let header = options.header { records.columns = try records.columns(in: header) }
    }

    public mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void) {
        var records = records
        splitter.append(bytes) { records.take($0, report) }
        self.records = records
    }

    public mutating func end(_ report: (ImportedElement) -> Void) {
        var records = records
        splitter.end { records.take($0, report) }
        self.records = records
    }

    /// The indices of the fields that are read.
    fileprivate struct Columns {
        enum Content {
            case ids(experiment: Int, variation: Int)
            case names(experiment: Int, variation: Int)
            case map(Int)
        }

        var userID: Int
        var content: Content
        var count: Int
    }

    fileprivate struct Records {
        let options: Options
        let names: ExperimentNames
        /// `nil` until the header was read.
        var columns: Columns?
        /// Whether the header was refused. Nothing is read then.
        var isRefused = false
    }
}

extension DelimitedProfiles.Records {
    fileprivate mutating func take(_ record: RecordSplitter.Record, _ report: (ImportedElement) -> Void) {
        guard !isRefused else { return }
        do throws(CoreError) {
            let fields = try record.fields.get()
            guard let columns else {
                let header = fields.map { String(decoding: $0, as: UTF8.self) }
                self.columns = try self.columns(in: header)
                return
            }
            let profile = try profile(fields, columns)
            report(ImportedElement(line: record.line, .profile(profile)))
        } catch {
            // A refused header is reported once. Otherwise each record would be refused for the same reason.
            isRefused = columns == nil
            report(ImportedElement(line: record.line, .refused(error)))
        }
    }

    fileprivate func columns(in header: [String]) throws(CoreError) -> DelimitedProfiles.Columns {
        func index(_ name: String) -> Int? { header.firstIndex(of: options.columns[name] ?? name) }
        for (name, given) in options.columns where index(name) == nil {
            throw CoreError(.invalid, "the column '\(given)' for \(name) must be in the header; it has \(list(header))")
        }
        guard let userID = index("user_id") else {
            throw CoreError(.invalid, "the header must have a column user_id; it has \(list(header))")
        }
        let content: DelimitedProfiles.Columns.Content
        if let map = index("experiment_bucket_map") {
            content = .map(map)
        } else if let experiment = index("experiment_id"), let variation = index("variation_id") {
            content = .ids(experiment: experiment, variation: variation)
        } else if let experiment = index("experiment"), let variation = index("variation") {
            content = .names(experiment: experiment, variation: variation)
        } else {
            throw CoreError(
                .invalid,
                "the header must have the columns experiment_id and variation_id, or experiment and variation, "
                    + "or experiment_bucket_map; it has \(list(header))")
        }
        return DelimitedProfiles.Columns(userID: userID, content: content, count: header.count)
    }

    private func list(_ header: [String]) -> String {
        header.map { $0.shortened(to: CoreError.longestQuote) }.prefix(20).joined(separator: ", ")
    }

    private func profile(_ fields: [[UInt8]], _ columns: DelimitedProfiles.Columns) throws(CoreError) -> ProfileInput {
        guard fields.count == columns.count else {
            throw CoreError(.invalid, "a record must have \(columns.count) fields, as the header; got \(fields.count)")
        }
        let userID = try ProfileInput.checkUserID(try text(fields[columns.userID], "user_id"), at: nil)
        switch columns.content {
        case .map(let index):
            return ProfileInput(userID: userID, assignments: try map(fields[index]))
        case .ids(let experiment, let variation):
            let experimentID = try NameRule.checkExperimentID(
                try text(fields[experiment], "experiment_id"), at: nil)
            let text = try text(fields[variation], "variation_id")
            let variationID = try ProfileInput.variationID(.string(text), at: [])
            return ProfileInput(userID: userID, entry: (experimentID, variationID))
        case .names(let experiment, let variation):
            let name = Identifier(try text(fields[experiment], "experiment"))
            guard let found = try names.experiment(name) else {
                let name = name.string.shortened(to: CoreError.longestQuote)
                throw CoreError(
                    .unprocessable, "the experiment must be one of the database's; got '\(name)'; create it first")
            }
            let key = Identifier(try text(fields[variation], "variation"))
            let variation = try ExperimentNames.variation(key, of: found, allowsPlace: false)
            return ProfileInput(userID: userID, entry: try ExperimentNames.entry(found, variation))
        }
    }

    private func text(_ bytes: [UInt8], _ name: String) throws(CoreError) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw CoreError(.invalid, "\(name) must be UTF-8")
        }
        return text
    }

    private func map(_ bytes: [UInt8]) throws(CoreError) -> ExperimentBucketMap {
        let value: JSONValue
        if let map = CQLMap.parse(bytes) {
            value = map
        } else {
            do throws(JSONError) {
                value = try JSONParser(maximumDepth: 64, duplicateKeys: .refused).parse(bytes)
            } catch {
                throw CoreError(error, in: "experiment_bucket_map")
            }
        }
        return try ProfileInput.assignments(value, at: [])
    }
}

extension ProfileInput {
    /// A profile with one assignment.
    init(userID: Identifier, entry: (experimentID: Identifier, variationID: Identifier)) {
        let entry = ExperimentBucketMap.Entry(experimentID: entry.experimentID, variationID: entry.variationID)
        self.init(userID: userID, assignments: ExperimentBucketMap([entry]))
    }
}

/// A map as CQL writes it: `{'77': {'variation_id': 'b'}}`, `{'77': {variation_id: 'b'}}` of a user-defined type, or
/// `{'77': 'b'}`. In texts a quotation mark is doubled.
enum CQLMap {
    /// Returns the map as the JSON of an `experiment_bucket_map`; `nil` if the text is no such map.
    static func parse(_ bytes: [UInt8]) -> JSONValue? {
        var reader = Reader(rest: bytes[...])
        guard let map = reader.map(of: { $0.assignment() }), reader.isAtEnd else { return nil }
        return .object(map)
    }

    private struct Reader {
        var rest: ArraySlice<UInt8>

        var isAtEnd: Bool { rest.allSatisfy { $0 == 0x20 } }

        mutating func map(of value: (inout Reader) -> JSONValue?) -> JSONObject? {
            guard skip("{") else { return nil }
            var map = JSONObject()
            if skip("}") { return map }
            repeat {
                guard let key = name(), skip(":"), let value = value(&self) else { return nil }
                map[key] = value
            } while skip(",")
            return skip("}") ? map : nil
        }

        mutating func assignment() -> JSONValue? {
            if let text = text() { return .object(Self.assignment(text)) }
            return map { $0.text().map { .string($0) } }.map { .object($0) }
        }

        private static func assignment(_ variation: String) -> JSONObject {
            var object = JSONObject()
            object["variation_id"] = .string(variation)
            return object
        }

        private mutating func name() -> String? {
            if let text = text() { return text }
            let word = rest.prefix { $0 == UInt8(ascii: "_") || NameRule.isExperimentID(CollectionOfOne($0)) }
            guard !word.isEmpty else { return nil }
            rest = rest[word.endIndex...]
            return String(decoding: word, as: UTF8.self)
        }

        private mutating func text() -> String? {
            let quote = UInt8(ascii: "'")
            while rest.first == 0x20 { rest = rest.dropFirst() }
            guard rest.first == quote else { return nil }
            var text: [UInt8] = []
            var index = rest.startIndex + 1
            while index < rest.endIndex {
                if rest[index] != quote {
                    text.append(rest[index])
                } else if index + 1 < rest.endIndex, rest[index + 1] == quote {
                    text.append(quote)
                    index += 1
                } else {
                    rest = rest[(index + 1)...]
                    return String(validating: text, as: UTF8.self)
                }
                index += 1
            }
            return nil
        }

        private mutating func skip(_ character: Unicode.Scalar) -> Bool {
            while rest.first == 0x20 { rest = rest.dropFirst() }
            guard rest.first == UInt8(ascii: character) else { return false }
            rest = rest.dropFirst()
            return true
        }
    }
}
