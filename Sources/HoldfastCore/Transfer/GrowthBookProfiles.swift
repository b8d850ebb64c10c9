import Bucketing
import Definitions
import JSON
import Storage

/// Reads the documents of GrowthBook's sticky bucketing, either one JSON object per line or all in one array:
/// `{"attributeName":"id","attributeValue":"ann","assignments":{"checkout__0":"control"}}`.
///
/// A key of `assignments` consists of the experiment's key and its bucket version. The value is the key of the
/// variation, which by default is the variation's index in the experiment's list. If an experiment has several
/// versions, the greatest one counts.
public struct GrowthBookProfiles: ProfileReader {
    private var splitter = JSONElementSplitter(limit: ImportedElement.lengthLimit)
    private var documents: Documents

    /// - Parameter attribute: the attribute whose values are the user ids. Documents of other attributes are skipped.
    public init(names: ExperimentNames, attribute: String = "id") {
        documents = Documents(names: names, attribute: attribute)
    }

    public mutating func append(_ bytes: UnsafeRawBufferPointer, _ report: (ImportedElement) -> Void) {
        var documents = documents
        splitter.append(bytes) { documents.take($0, $1, report) }
        self.documents = documents
    }

    public mutating func end(_ report: (ImportedElement) -> Void) {
        var documents = documents
        splitter.end { documents.take($0, $1, report) }
        self.documents = documents
    }

    public var notes: [String] { documents.notes }

    /// Converts documents to profiles.
    fileprivate struct Documents {
        let names: ExperimentNames
        let attribute: String
        /// The number of skipped documents, by the attribute to which they belong.
        var skippedDocuments = Tally()
        /// The number of skipped assignments to unknown experiments, by the key of the experiment.
        var skippedAssignments = Tally()
    }

    /// Counts by name.
    fileprivate struct Tally {
        private var counts: [String: Int] = [:]
        /// The count of all names beyond ``nameLimit``.
        private var others = 0
        /// The maximum number of names that are counted separately. It bounds the memory.
        private static let nameLimit = 1_000
        /// The maximum number of names in ``description``.
        private static let shownNames = 20

        mutating func count(_ name: String) {
            if counts[name] != nil || counts.count < Self.nameLimit {
                counts[name, default: 0] += 1
            } else {
                others += 1
            }
        }

        /// The counts as text, the greatest first, such as "a (3), b (1) and 5 more"; `nil` if there are none.
        var description: String? {
            guard !counts.isEmpty else { return nil }
            let sorted = counts.sorted { left, right in
                left.value == right.value ? left.key < right.key : left.value > right.value
            }
            let shown = sorted.prefix(Self.shownNames).map { "\($0.key.shortened(to: 64)) (\($0.value))" }
            let rest = sorted.dropFirst(Self.shownNames).reduce(others) { $0 + $1.value }
            return shown.joined(separator: ", ") + (rest > 0 ? " and \(rest) more" : "")
        }
    }
}

extension GrowthBookProfiles.Documents {
    fileprivate var notes: [String] {
        [
            skippedDocuments.description.map { "left out documents of attributes other than '\(attribute)': \($0)" },
            skippedAssignments.description.map { "left out assignments in experiments that are not here: \($0)" },
        ].compactMap(\.self)
    }

    /// Takes the next document, and reports its profile.
    fileprivate mutating func take(
        _ place: ImportedElement.Place, _ text: UnsafeRawBufferPointer?, _ report: (ImportedElement) -> Void
    ) {
        guard let text else { return report(.tooLong(at: place, "a document")) }
        do throws(CoreError) {
            guard let object = try JSONInput.parse(text, called: "the document").object else {
                throw CoreError(.invalid, "a document must be an object")
            }
            let name = try object.text("attributeName")
            guard name == attribute else { return skippedDocuments.count(name) }
            let userID = try ProfileInput.checkUserID(try Self.value(of: object), at: ["attributeValue"])
            guard let assignments = object["assignments"]?.object else {
                throw CoreError(.invalid, "`assignments` must be an object", at: ["assignments"])
            }
            if let profile = try profile(userID, try newestVersions(assignments)) {
                report(ImportedElement(at: place, .profile(profile)))
            }
        } catch {
            report(ImportedElement(at: place, .refused(error)))
        }
    }

    /// Returns the attribute's value as text. A whole number counts as its text, as in GrowthBook's SDKs.
    private static func value(of object: JSONObject) throws(CoreError) -> String {
        switch object["attributeValue"] {
        case .string(let text): return text
        case .integer(let number): return "\(number)"
        case let other:
            throw CoreError(
                .invalid, "`attributeValue` must be a string; got \(other?.kind ?? "none")", at: ["attributeValue"])
        }
    }

    /// Returns the variation of the greatest bucket version of each experiment, sorted by experiment.
    ///
    /// - Throws: 400 for a key or a variation of another form.
    private func newestVersions(
        _ assignments: JSONObject
    ) throws(CoreError) -> [(experiment: String, variation: String)] {
        var newest: [String: (version: Int, variation: String)] = [:]
        for member in assignments {
            guard let mark = member.key.ranges(of: "__").last,
                let version = Int(member.key[mark.upperBound...]), version >= 0, mark.lowerBound > member.key.startIndex
            else {
                throw CoreError(
                    .invalid, "a key of `assignments` must be an experiment's key, '__' and its bucket version",
                    at: ["assignments", member.key])
            }
            guard let variation = member.value.string else {
                throw CoreError(
                    .invalid, "a variation must be a string; got \(member.value.kind)", at: ["assignments", member.key])
            }
            let experiment = String(member.key[..<mark.lowerBound])
            if let known = newest[experiment], known.version > version { continue }
            newest[experiment] = (version, variation)
        }
        return newest.map { ($0.key, $0.value.variation) }.sorted { $0.0 < $1.0 }
    }

    /// Returns the profile of a document; `nil` if the database has none of the experiments.
    private mutating func profile(
        _ userID: Identifier, _ assignments: [(experiment: String, variation: String)]
    ) throws(CoreError) -> ProfileInput? {
        var entries: [ExperimentBucketMap.Entry] = []
        for (key, variation) in assignments {
            guard let experiment = try names.experiment(Identifier(key)) else {
                skippedAssignments.count(key)
                continue
            }
            let variation = try ExperimentNames.variation(Identifier(variation), of: experiment, allowsIndex: true)
            entries.append(try ExperimentNames.entry(experiment, variation))
        }
        return entries.isEmpty ? nil : ProfileInput(userID: userID, assignments: ExperimentBucketMap(entries))
    }
}
