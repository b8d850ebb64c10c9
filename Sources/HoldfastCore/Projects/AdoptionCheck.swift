import Bucketing
import Definitions
import JSON
import Storage

/// Checks that a project makes the same decisions, and that the API shows the same definitions, once the datafile is
/// stored in parts. `holdfast migrate --verify` prints the result.
///
/// A datafile that was uploaded, or that an earlier release stored, is one document. The next edit stores it in parts,
/// each a row of a table; see ``Bucketing/DatafileParts``. The check takes the datafile apart without storing anything.
/// It also writes each element anew, as if an edit had changed it, and reads the parts as another server would.
public struct AdoptionCheck: Sendable {
    public let sdkKey: String
    /// The number of experiments of the project.
    public let experiments: Int
    /// The number of flags of the project.
    public let flags: Int
    /// Whether the datafile stays one document, because two elements of a list have the same name. Then nothing is
    /// compared.
    public private(set) var staysWhole = false
    /// The number of decisions that were compared.
    public private(set) var decisions = 0
    /// The differences that were found, as sentences; at most ``limit``.
    public private(set) var differences: [String] = []

    /// The maximum number of ``differences``. The check ends once it has found so many.
    public static let limit = 20

    private let before: CompiledDefinitions

    /// - Parameter users: the number of made-up users for whom all flags and experiments are decided.
    public init(_ project: Project, users: Int) {
        self.init(project, users: users) { compiled throws(CoreError) in try compiled.adopted() }
    }

    /// - Parameter adopt: returns the definitions as another server reads them from parts; `nil` if the datafile stays
    ///   whole.
    init(
        _ project: Project, users: Int,
        adopt: (CompiledDefinitions) throws(CoreError) -> CompiledDefinitions?
    ) {
        sdkKey = project.sdkKey
        before = project.compiled
        experiments = before.datafile.experiments.count
        flags = before.datafile.flags.count
        do throws(CoreError) {
            guard let adopted = try adopt(before) else {
                staysWhole = true
                return
            }
            compareDescriptions(of: Experiment.self, with: adopted)
            compareDescriptions(of: Flag.self, with: adopted)
            compareDescriptions(of: MetricDefinition.self, with: adopted)
            compareDescriptions(of: Holdout.self, with: adopted)
            let audienceValues = before.datafile.audienceValues
            for number in 0..<users where differences.count < Self.limit {
                compareDecisions(for: .madeUp(number, audienceValues), with: adopted.datafile)
            }
        } catch {
            add("the definitions are not usable as rows: \(error.detail)")
        }
    }

    private mutating func add(_ difference: String) {
        if differences.count < Self.limit { differences.append(difference) }
    }

    /// Compares the elements of a kind as `GET` shows them.
    private mutating func compareDescriptions<Element: DefinedElement>(
        of type: Element.Type, with adopted: CompiledDefinitions
    ) {
        let elements = Element.all(in: before)
        if elements.count != Element.all(in: adopted).count {
            add("\(Element.list): \(elements.count) elements, but \(Element.all(in: adopted).count) as rows")
        }
        for element in elements {
            let shown = element.description(in: before, sdkKey: sdkKey).withoutVersion
            let shownAdopted = Element.description(of: element.key.string, in: adopted, sdkKey: sdkKey)?.withoutVersion
            if shown != shownAdopted { add("the \(Element.noun) '\(element.key)' is described differently") }
        }
    }

    /// Compares the decisions of all flags and experiments for a user.
    private mutating func compareDecisions(for user: User, with adopted: Datafile) {
        let expected = DecisionService(datafile: before.datafile)
        let found = DecisionService(datafile: adopted)
        for flag in before.datafile.flags {
            let decision = expected.decide(flag.key, for: user)?.value
            let adoptedDecision = found.decide(flag.key, for: user)?.value
            if !Self.areSame(decision, adoptedDecision) {
                add("the flag '\(flag.key)' is decided differently for the user '\(user.id)'")
            }
        }
        for experiment in before.datafile.experiments {
            let variation = expected.variation(of: experiment, for: user).variation
            let adoptedVariation = adopted.experiment(id: experiment.id).flatMap {
                found.variation(of: $0, for: user).variation
            }
            if variation?.id != adoptedVariation?.id {
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

/// An attribute, and the values with which audiences compare it.
private struct AudienceValues {
    let attribute: String
    let values: [JSONValue]
}

extension User {
    /// Returns a user whose attributes have some of the values that audiences test, so that audiences admit some of the
    /// users.
    ///
    /// - Parameter number: the number of the user. The same number returns the same user.
    fileprivate static func madeUp(_ number: Int, _ audienceValues: [AudienceValues]) -> User {
        var attributes = JSONObject()
        for entry in audienceValues {
            // The hash chooses one of the values, or none, so that a failed check can be repeated.
            let hash = Bucketer.hash(bucketingID: Identifier(String(number)), parentID: Identifier(entry.attribute))
            let choice = Int(hash) % (entry.values.count + 1)
            if choice < entry.values.count { attributes[entry.attribute] = entry.values[choice] }
        }
        return User(id: Identifier("made-up-\(number)"), attributes: attributes)
    }
}

extension Datafile {
    /// The values with which audiences compare attributes, in the order of the attributes' names.
    fileprivate var audienceValues: [AudienceValues] {
        var valuesByName: [String: [JSONValue]] = [:]
        func collect(_ conditions: JSONValue) {
            for part in conditions.array ?? [] { collect(part) }
            guard let test = conditions.object, let name = test["name"]?.string, let value = test["value"] else {
                return
            }
            for value in value.array ?? [value] where valuesByName[name]?.contains(value) != true {
                valuesByName[name, default: []].append(value)
            }
        }
        for audience in audiences { collect(audience.conditions) }
        return valuesByName.sorted { $0.key < $1.key }.map { AudienceValues(attribute: $0.key, values: $0.value) }
    }
}

extension JSONValue {
    /// The description of an element without the members that change with each edit.
    fileprivate var withoutVersion: JSONValue {
        guard var object else { return self }
        object["version"] = nil
        object["revision"] = nil
        return .object(object)
    }
}
