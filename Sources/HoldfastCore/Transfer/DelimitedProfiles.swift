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
    /// The format of the input.
    public struct Options: Sendable {
        /// The delimiter of fields, an ASCII character.
        public var delimiter = UInt8(ascii: ",")
        /// Whether a backslash escapes characters, as in the output of `cqlsh`. Otherwise quotation marks are doubled.
        public var escapesByBackslash = false
        /// The names of the columns; `nil` if the first record of the input is the header.
        public var header: [String]?
        /// The columns that have other names in the input: the names in the input, by the names of ``knownColumns``.
        public var columns: [String: String] = [:]

        public init() {}
    }

    /// The names of the columns that are read.
    public static let knownColumns = [
        "user_id", "experiment_id", "variation_id", "experiment", "variation", "experiment_bucket_map",
    ]

    private var splitter: RecordSplitter
    private var records: Records

    /// - Throws: 400 if the header in the options lacks a column.
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

    /// The columns that are read, by their indices in a record.
    fileprivate struct Columns {
        /// The columns with the assignments of a record.
        enum Content {
            /// The ids of an experiment and a variation.
            case ids(experiment: Int, variation: Int)
            /// The keys or ids of an experiment and a variation that the database has.
            case names(experiment: Int, variation: Int)
            /// An `experiment_bucket_map`.
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
        /// The columns; `nil` until the header was read.
        var columns: Columns?
        /// Whether the header was refused. All further records are then skipped.
        var isHeaderRefused = false
    }
}

extension DelimitedProfiles.Records {
    /// Takes the next record: the header, or a profile to report.
    fileprivate mutating func take(_ record: RecordSplitter.Record, _ report: (ImportedElement) -> Void) {
        guard !isHeaderRefused else { return }
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
            // The fault of a header is reported once, and not again for each record.
            isHeaderRefused = columns == nil
            report(ImportedElement(line: record.line, .refused(error)))
        }
    }

    /// Finds the columns in a header.
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
        case .map(let index): return ProfileInput(userID: userID, assignments: try map(fields[index]))
        case .ids(let experiment, let variation):
            return ProfileInput(userID: userID, entry: try entry(ids: fields[experiment], fields[variation]))
        case .names(let experiment, let variation):
            return ProfileInput(userID: userID, entry: try entry(names: fields[experiment], fields[variation]))
        }
    }

    /// Returns the assignment with the ids in two fields. The ids need not be in the database.
    private func entry(
        ids experiment: [UInt8], _ variation: [UInt8]
    ) throws(CoreError) -> ExperimentBucketMap.Entry {
        let experimentID = try NameRule.checkExperimentID(try text(experiment, "experiment_id"), at: nil)
        let variationID = try ProfileInput.variationID(.string(try text(variation, "variation_id")), at: [])
        return ExperimentBucketMap.Entry(experimentID: experimentID, variationID: variationID)
    }

    /// Returns the assignment of an experiment and a variation that two fields name by keys or ids.
    ///
    /// - Throws: 422 if the database does not have the experiment or the variation.
    private func entry(
        names experiment: [UInt8], _ variation: [UInt8]
    ) throws(CoreError) -> ExperimentBucketMap.Entry {
        let name = Identifier(try text(experiment, "experiment"))
        guard let found = try names.experiment(name) else {
            let name = name.string.shortened(to: CoreError.longestQuote)
            throw CoreError(
                .unprocessable, "the experiment must be one of the database's; got '\(name)'; create it first")
        }
        let key = Identifier(try text(variation, "variation"))
        let foundVariation = try ExperimentNames.variation(key, of: found, allowsIndex: false)
        return try ExperimentNames.entry(found, foundVariation)
    }

    /// Returns a field as text.
    ///
    /// - Parameter name: the name of the column, for the error.
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
    /// Creates a profile with one assignment.
    fileprivate init(userID: Identifier, entry: ExperimentBucketMap.Entry) {
        self.init(userID: userID, assignments: ExperimentBucketMap([entry]))
    }
}
