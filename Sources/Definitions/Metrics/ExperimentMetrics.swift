public import Bucketing
public import JSON

/// The keys of the metrics that an experiment measures, with their roles.
public struct ExperimentMetrics: Sendable, Equatable {
    /// The accepted loss in a guardrail metric.
    public enum Margin: Sendable, Equatable {
        /// A share of the magnitude of the baseline's mean, greater than 0 and at most 1.
        case share(Double)
        /// A number in the metric's unit, for metrics whose baseline is near 0. Greater than 0 and at most 1e15.
        case absolute(Double)

        public var json: JSONValue {
            switch self {
            case .share(let share): .shortest(share)
            case .absolute(let number): ["absolute": .shortest(number)]
            }
        }

        /// Reads a number, or `{"absolute": NUMBER}`.
        ///
        /// - Returns: `nil` if the value is neither, or out of range.
        public init?(_ value: JSONValue?) {
            if let share = value?.double, share > 0, share <= 1 {
                self = .share(share)
            } else if let object = value?.object, object.count == 1, let number = object["absolute"]?.double,
                number > 0, number <= 1e15
            {
                self = .absolute(number)
            } else {
                return nil
            }
        }
    }

    /// A metric that must not become worse by more than a margin.
    public struct Guardrail: Sendable, Equatable {
        public var metric: Identifier
        public var margin: Margin

        public init(metric: Identifier, margin: Margin) {
            self.metric = metric
            self.margin = margin
        }
    }

    /// The metrics that decide about the success of the experiment.
    public var primary: [Identifier] = []
    /// The metrics that are shown, but decide nothing.
    public var secondary: [Identifier] = []
    public var guardrails: [Guardrail] = []
    /// The attributes by which results are broken down: users are grouped by the value at their first exposure.
    public var breakdowns: [Identifier] = []

    public init() {}

    /// The maximum number of metrics of an experiment.
    public static let limit = 50
    /// The maximum number of attributes in ``breakdowns``.
    public static let breakdownLimit = 5

    /// The keys of all metrics: primary, secondary, then guardrails.
    public var all: [Identifier] { primary + secondary + guardrails.map(\.metric) }
    public var isEmpty: Bool { all.isEmpty && breakdowns.isEmpty }

    /// All lists, also the empty ones, as they are stored and shown.
    public var json: JSONValue {
        [
            "primary": JSONValue(primary), "secondary": JSONValue(secondary),
            "guardrails": .array(
                guardrails.map { ["metric": JSONValue($0.metric), "margin": $0.margin.json] }),
            "breakdowns": JSONValue(breakdowns),
        ]
    }

    /// Reads stored metrics. Damaged JSON counts as no metrics.
    public init(stored value: JSONValue?) {
        var faults = FaultCollector()
        guard let value, let metrics = Self(value, at: [], &faults), faults.faults.isEmpty else { return }
        self = metrics
    }

    /// Reads the member `metrics` of an experiment. Null means no metrics.
    ///
    /// - Returns: `nil` if it is not an object.
    public init?(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) {
        guard !value.isNull else { return }
        let members = ["primary", "secondary", "guardrails", "breakdowns"]
        guard let object = faults.object(value, "`metrics`", knowing: members, at: place) else { return nil }
        var known: Set<Identifier> = []
        primary = Self.keys(object, "primary", at: place, &known, &faults)
        secondary = Self.keys(object, "secondary", at: place, &known, &faults)
        guardrails = Self.guardrails(object, at: place, &known, &faults)
        if known.count > Self.limit {
            faults.add("`metrics` must have at most \(Self.limit) metrics; got \(known.count)", at: place)
        }
        breakdowns = Self.breakdowns(object, at: place, &faults)
    }

    /// Reads the key of a metric.
    ///
    /// - Parameter known: the keys that were read before. A metric has only one role in an experiment.
    private static func key(
        _ value: JSONValue, at place: JSONPointer, _ known: inout Set<Identifier>, _ faults: inout FaultCollector
    ) -> Identifier? {
        guard let text = value.string else {
            faults.add("a metric must be a key; got \(value.kind)", at: place)
            return nil
        }
        let key = Identifier(text)
        if !known.insert(key).inserted { faults.add("the metrics must differ; got '\(key)' twice", at: place) }
        return key
    }

    /// Reads the member `primary` or `secondary`.
    private static func keys(
        _ object: JSONObject, _ name: String, at place: JSONPointer, _ known: inout Set<Identifier>,
        _ faults: inout FaultCollector
    ) -> [Identifier] {
        var keys: [Identifier] = []
        for (value, place) in faults.list(object, name, 0...limit, at: place) ?? [] {
            if let metric = key(value, at: place, &known, &faults) { keys.append(metric) }
        }
        return keys
    }

    private static func guardrails(
        _ object: JSONObject, at place: JSONPointer, _ known: inout Set<Identifier>, _ faults: inout FaultCollector
    ) -> [Guardrail] {
        var guardrails: [Guardrail] = []
        for (value, place) in faults.list(object, "guardrails", 0...limit, at: place) ?? [] {
            guard let object = faults.object(value, "a guardrail", knowing: ["metric", "margin"], at: place) else {
                continue
            }
            let metric = key(object["metric"] ?? .null, at: place.appending("metric"), &known, &faults)
            guard let margin = Margin(object["margin"]) else {
                let found = object["margin"].map { $0.double.map { "\($0)" } ?? $0.kind } ?? "none"
                faults.add(
                    "`margin` must be greater than 0 and at most 1, such as 0.02 for 2% of the baseline, or "
                        + "{\"absolute\": NUMBER} in the metric's unit; got \(found)",
                    at: place.appending("margin"))
                continue
            }
            if let metric { guardrails.append(Guardrail(metric: metric, margin: margin)) }
        }
        return guardrails
    }

    private static func breakdowns(
        _ object: JSONObject, at place: JSONPointer, _ faults: inout FaultCollector
    ) -> [Identifier] {
        var breakdowns: [Identifier] = []
        for (value, place) in faults.list(object, "breakdowns", 0...breakdownLimit, at: place) ?? [] {
            guard let text = value.string, NameRule.admits(text) else {
                let found = value.string.map { "\($0.utf8.count) bytes" } ?? value.kind
                faults.add("an attribute must be a string of 1 to 255 bytes, without NUL; got \(found)", at: place)
                continue
            }
            if breakdowns.contains(Identifier(text)) {
                faults.add("the attributes must differ; got '\(text)' twice", at: place)
            }
            breakdowns.append(Identifier(text))
        }
        return breakdowns
    }

    /// Checks that all metrics are defined in the project.
    ///
    /// - Throws: 422 with every metric that is not.
    public func check(_ defined: DefinitionList<some KeyedDefinition>) throws(CoreError) {
        var faults = FaultCollector()
        let place: JSONPointer = ["metrics"]
        let places =
            primary.enumerated().map { ($0.element, place.appending("primary").appending($0.offset)) }
            + secondary.enumerated().map { ($0.element, place.appending("secondary").appending($0.offset)) }
            + guardrails.enumerated().map {
                ($0.element.metric, place.appending("guardrails").appending($0.offset).appending("metric"))
            }
        for (key, place) in places where defined[key] == nil {
            let hint = Spelling.hint(for: key, among: defined.lazy.map(\.listKey))
            faults.add("a metric must be defined first, with PUT /v1/metrics/KEY; got '\(key)'\(hint)", at: place)
        }
        try faults.check()
    }
}

extension Form where Value == ExperimentMetrics {
    /// The form of the member `metrics`. Files leave out empty lists.
    ///
    /// - Parameter breakdowns: whether `breakdowns` may have elements.
    public static func metrics(breakdowns: Bool = true) -> Self {
        Form(
            schema: ["$ref": "#/components/schemas/ExperimentMetrics"],
            read: { given, faults in
                let metrics = ExperimentMetrics(given.value, at: given.place, &faults)
                if !breakdowns, metrics?.breakdowns.isEmpty == false {
                    faults.add(
                        "`breakdowns` must be left out, because holdouts have none",
                        at: given.place.appending("breakdowns"))
                }
                return metrics
            },
            write: { $0.json },
            file: { metrics in
                var lists = JSONObject()
                for list in metrics.json.object ?? JSONObject() where list.value != [] { lists[list.key] = list.value }
                return .object(lists)
            },
            stored: { ExperimentMetrics(stored: $0) })
    }
}
