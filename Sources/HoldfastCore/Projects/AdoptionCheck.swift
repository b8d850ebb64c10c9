import Bucketing
import Definitions
import JSON
import Storage

/// Shows that a project decides and looks as before once its definitions are stored as rows.
///
/// The next edit of a datafile that was uploaded, or that an earlier release stored, makes rows of it. The check does the
/// same without storing anything, also writes each element anew as if it had been edited, and reads the result as another
/// server would.
public struct AdoptionCheck: Sendable {
    public let sdkKey: String
    public let experiments: Int
    public let flags: Int
    /// Whether the datafile stays one document, because elements of a list have the same name.
    public private(set) var staysWhole = false
    /// How many decisions were compared.
    public private(set) var decisions = 0
    /// What is not as before, in sentences; at most ``limit``.
    public private(set) var differences: [String] = []

    public static let limit = 20

    private let before: CompiledDefinitions

    /// - Parameter users: how many made-up users are decided for, by all flags and experiments.
    public init(_ project: Project, users: Int) {
        self.init(project, users: users) { compiled throws(CoreError) in try compiled.adopted() }
    }

    /// - Parameter adopt: returns the definitions as another server reads them from rows; `nil` if the datafile stays whole.
    init(
        _ project: Project, users: Int,
        adopt: (CompiledDefinitions) throws(CoreError) -> CompiledDefinitions?
    ) {
        sdkKey = project.sdkKey
        before = project.compiled
        experiments = before.datafile.experiments.count
        flags = before.datafile.flags.count
        do throws(CoreError) {
            guard let rows = try adopt(before) else {
                staysWhole = true
                return
            }
            compare(Experiment.self, rows)
            compare(Flag.self, rows)
            compare(MetricDefinition.self, rows)
            compare(Holdout.self, rows)
            let asked = before.datafile.askedValues
            for number in 0..<users where differences.count < Self.limit {
                compare(decisionsOf: .madeUp(number, asked), rows.datafile)
            }
        } catch {
            add("the definitions are not usable as rows: \(error.detail)")
        }
    }

    private mutating func add(_ difference: String) {
        if differences.count < Self.limit { differences.append(difference) }
    }

    private mutating func compare<Element: DefinedElement>(_ type: Element.Type, _ rows: CompiledDefinitions) {
        let elements = Element.all(in: before)
        if elements.count != Element.all(in: rows).count {
            add("there are \(elements.count) of \(Element.list), and \(Element.all(in: rows).count) as rows")
        }
        for element in elements {
            let shown = element.description(in: before, sdkKey: sdkKey).withoutVersion
            let shownAsRow = Element.description(of: element.key.string, in: rows, sdkKey: sdkKey)?.withoutVersion
            if shown != shownAsRow { add("the \(Element.noun) '\(element.key)' looks otherwise") }
        }
    }

    private mutating func compare(decisionsOf user: User, _ rows: Datafile) {
        let expected = DecisionService(datafile: before.datafile)
        let found = DecisionService(datafile: rows)
        for flag in before.datafile.flags {
            let decision = expected.decide(flag.key, for: user)?.value
            let ofRows = found.decide(flag.key, for: user)?.value
            if !Self.areSame(decision, ofRows) { add("the flag '\(flag.key)' is another for the user '\(user.id)'") }
        }
        for experiment in before.datafile.experiments {
            let variation = expected.variation(of: experiment, for: user).variation
            let ofRows = rows.experiment(id: experiment.id).flatMap { found.variation(of: $0, for: user).variation }
            if variation?.id != ofRows?.id {
                add("the experiment '\(experiment.key)' has another variation for the user '\(user.id)'")
            }
        }
        decisions += before.datafile.flags.count + before.datafile.experiments.count
    }

    private static func areSame(_ left: Decision?, _ right: Decision?) -> Bool {
        left?.isEnabled == right?.isEnabled && left?.ruleKey == right?.ruleKey
            && left?.variation?.id == right?.variation?.id
            && left?.variables == right?.variables
    }
}

/// The values with which audiences compare attributes, by the names of the attributes.
private typealias AskedValues = [(attribute: String, values: [JSONValue])]

extension User {
    /// A user for whom audiences have an answer: with some of the values that they look for.
    ///
    /// - Parameter number: the same number makes the same user.
    fileprivate static func madeUp(_ number: Int, _ asked: AskedValues) -> User {
        var attributes = JSONObject()
        for (attribute, values) in asked {
            // Which value the user has, or none, looks random, but is the same each time.
            let hash = Bucketer.hash(bucketingID: Identifier(String(number)), parentID: Identifier(attribute))
            let choice = Int(hash) % (values.count + 1)
            if choice < values.count { attributes[attribute] = values[choice] }
        }
        return User(id: Identifier("made-up-\(number)"), attributes: attributes)
    }
}

extension Datafile {
    fileprivate var askedValues: AskedValues {
        var values: [String: [JSONValue]] = [:]
        func collect(_ conditions: JSONValue) {
            for part in conditions.array ?? [] { collect(part) }
            guard let test = conditions.object, let name = test["name"]?.string, let value = test["value"] else {
                return
            }
            for value in value.array ?? [value] where values[name]?.contains(value) != true {
                values[name, default: []].append(value)
            }
        }
        for audience in audiences { collect(audience.conditions) }
        return values.sorted { $0.key < $1.key }.map { (attribute: $0.key, values: $0.value) }
    }
}

extension JSONValue {
    /// Without the members that count edits.
    fileprivate var withoutVersion: JSONValue {
        guard var object else { return self }
        object["version"] = nil
        object["revision"] = nil
        return .object(object)
    }
}
