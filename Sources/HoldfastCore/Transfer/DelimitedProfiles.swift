import Bucketing
public import Definitions
import JSON
import Storage

/// Reads profiles from delimiter-separated values with named columns, in the form of RFC 4180 or of Cassandra's
/// `COPY … TO`.
///
/// A record has a user and either one assignment or a whole map:
/// - `user_id`, `experiment_id`, `variation_id`: ids, which are stored unchanged
/// - `user_id`, `experiment`, `variation`: keys or ids of experiments in the database
/// - `user_id`, `experiment_bucket_map`: a JSON object, or a map in the format of CQL
///
/// Further columns are ignored.
public struct DelimitedProfiles: ProfileReader {
    /// How the input is written.
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

    /// The positions of the columns that are read.
    fileprivate struct Columns {
        /// The columns with the assignments of a record.
        enum Content {
            case ids(experiment: Int, variation: Int)
            case names(experiment: Int, variation: Int)
            case map(Int)
        }

        var userID: Int
        var content: Content
        /// The number of all columns.
        var count: Int
    }

    /// Converts records to profiles. The first record is the header, unless the options have one.
    fileprivate struct Records {
        let options: Options
        let names: ExperimentNames
        /// `nil` until the header was read.
        var columns: Columns?
        /// Whether the header was refused. The records are then skipped.
        var isRefused = false
    }
}

extension DelimitedProfiles.Records {
    /// Takes the next record: the header, or a profile to report.
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

    /// Finds the columns.
    ///
    /// - Throws: 400 if the header lacks a column.
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

    /// Returns the names in a header for an error.
    private func list(_ header: [String]) -> String {
        header.map { $0.shortened(to: CoreError.longestQuote) }.prefix(20).joined(separator: ", ")
    }

    /// Returns the profile of a record.
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

    /// Returns a field as text.
    private func text(_ bytes: [UInt8], _ name: String) throws(CoreError) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw CoreError(.invalid, "\(name) must be UTF-8")
        }
        return text
    }

    /// Parses a map in the format of CQL or JSON.
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
