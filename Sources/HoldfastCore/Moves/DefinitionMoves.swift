import Bucketing
import Definitions
import JSON
import Storage

/// Finds out how a change of definitions moves enrolled users: those who have a stored assignment in a running
/// experiment.
///
/// In SDKs, the experiments of a flag decide in their order, and each takes every user whom it admits. So an experiment
/// moves users of the experiments after it if it is new, is placed before them, runs again, or admits more users than
/// before. The removal of a variation moves its users. The removal of a rule moves the users of its experiment.
///
/// Stopping an experiment is not a move, because the request asks for just that: by a status, by turning off a flag, or
/// by a `DELETE`. The edited datafile then still has the experiment, but does not run it.
///
/// A segment whose conditions change counts like a changed audience: the datafile stays the same, but its experiments
/// admit other users.
///
/// The work is done in two steps. The initializer compares the datafiles, and keeps only the experiments whose users
/// may be moved. ``moves(of:_:_:)`` then decides single users before and after the change.
struct DefinitionMoves: Sendable {
    /// Why users are moved.
    enum Cause: Hashable {
        /// Another experiment of the flag takes them, because it decides before theirs; the key of that experiment.
        case earlierExperiment(Identifier)
        /// Their variation is gone; the key of the variation.
        case variationRemoved(Identifier)
        /// The flag no longer has their experiment.
        case ruleRemoved
        /// The datafile no longer has their experiment.
        case experimentRemoved
        /// The datafile forces another variation on them.
        case whitelist
        /// A holdout keeps them out; the key of the holdout.
        case holdout(Identifier)
    }

    /// How one user is moved.
    struct Move: Hashable {
        /// The key of the experiment that the user is enrolled in.
        var experiment: Identifier
        var cause: Cause
        /// Whether the user gets another variation, or none. Otherwise the user gets a variation with the same key from
        /// another experiment.
        var changesVariation: Bool
    }

    /// The experiments that decide one after the other: those of a flag, or a single one that is in no flag.
    private struct Sequence {
        /// `nil` for an experiment that is in no flag.
        let flagKey: Identifier?
        /// The experiments before the change, in their order.
        let former: [Experiment]
        /// The experiments after the change, in their order.
        let edited: [Experiment]
        /// The ids of the experiments whose users may be moved.
        let affected: Set<Identifier>
    }

    /// The datafile before the change.
    private let former: Datafile
    /// The datafile after the change.
    private let edited: Datafile
    /// The sequences with an experiment whose users may be moved.
    private let sequences: [Sequence]
    /// The ids of the forced variations, by user id and experiment id.
    private let forcedVariations: [Identifier: [Identifier: Identifier]]
    /// The attributes and segments before the change.
    private let schema: AttributeSchema
    /// The attributes and segments after the change.
    private let editedSchema: AttributeSchema
    /// Whether ``moves(of:_:_:)`` needs the stored attributes of users, because an audience may depend on them.
    let needsAttributes: Bool

    /// Compares the definitions of a project, without looking at users.
    ///
    /// - Parameter segments: the segments whose conditions change.
    init(from project: Project, to compiled: CompiledDefinitions, changing segments: [Segment] = []) {
        let former = project.datafile
        let edited = compiled.datafile
        self.former = former
        self.edited = edited
        forcedVariations = project.forcedVariations
        schema = project.schema
        editedSchema = segments.isEmpty ? schema : schema.with(segments: segments)
        let keysUsingSegments = Set(segments.flatMap { former.keys(usingSegment: $0.name) })
        let changesHoldouts = project.definitions.holdoutLists != compiled.definitions.holdoutLists
        // Holdouts and segments affect all experiments. Otherwise only the elements that differ are compared, which are
        // few.
        let comparesAll = changesHoldouts || !keysUsingSegments.isEmpty
        var inFlags: Set<Identifier> = []
        var sequences: [Sequence] = []
        func compare(_ flagKey: Identifier?, _ before: [Experiment], _ after: [Experiment]) {
            // Concluding an experiment is not a move: the request asks that everybody gets the winner.
            let before = before.filter { edited.experiment(id: $0.id)?.isConcluded != true }
            var affected = Self.affected(before, after) { experiment, now in
                !keysUsingSegments.contains(experiment.key) && Self.takesSame(experiment, now, former, edited)
            }
            if changesHoldouts {
                affected.formUnion(before.lazy.filter(\.isRunning).map(\.id))
            }
            guard !affected.isEmpty else { return }
            sequences.append(Sequence(flagKey: flagKey, former: before, edited: after, affected: affected))
        }
        for flag in comparesAll ? former.flags : former.flags(unlike: edited) {
            guard let now = edited.flag(key: flag.key) else { continue }
            for experiment in flag.experiments { inFlags.insert(experiment.id) }
            if !now.annotations.isTurnedOff { compare(flag.key, flag.experiments, now.experiments) }
        }
        for experiment in comparesAll ? former.experiments : former.experiments(unlike: edited)
        where !former.isDeliveryRule(experiment.id) && !inFlags.contains(experiment.id) {
            compare(nil, [experiment], edited.experiment(id: experiment.id).map { [$0] } ?? [])
        }
        self.sequences = sequences
        let usedAttributes = schema.attributes(for: former.mentions) + editedSchema.attributes(for: edited.mentions)
        needsAttributes =
            !usedAttributes.isEmpty
            && (changesHoldouts || sequences.contains { $0.edited.contains { !$0.isForEverybody } })
    }

    /// Whether the change cannot move any user, so that no users need to be counted.
    var isEmpty: Bool { sequences.isEmpty }

    // MARK: Experiments

    /// Returns the experiments whose users may be moved.
    ///
    /// - Parameter takesSame: whether an experiment takes the same users before and after the change.
    private static func affected(
        _ before: [Experiment], _ after: [Experiment], takesSame: (Experiment, Experiment) -> Bool
    ) -> Set<Identifier> {
        var affected: Set<Identifier> = []
        for (index, experiment) in before.enumerated() where experiment.isRunning {
            guard let position = after.firstIndex(where: { $0.id == experiment.id }) else {
                affected.insert(experiment.id)
                continue
            }
            let now = after[position]
            guard now.isRunning else { continue }
            let hasAllVariations = experiment.variations.allSatisfy { now.variation(id: $0.id) != nil }
            let newlyTakes = after[..<position].contains { earlier in
                guard earlier.isRunning else { return false }
                let known = before[..<index].first { $0.id == earlier.id }
                return known.map { !takesSame($0, earlier) } ?? true
            }
            if !hasAllVariations || experiment.forcedVariations != now.forcedVariations || newlyTakes {
                affected.insert(experiment.id)
            }
        }
        return affected
    }

    /// Whether an experiment takes the same users before and after the change, apart from segments.
    private static func takesSame(
        _ before: Experiment, _ after: Experiment, _ former: Datafile, _ edited: Datafile
    ) -> Bool {
        // An edit leaves the experiments that it does not touch as they are.
        if before === after { return true }
        let isInSameGroup =
            before.exclusionGroup?.id == after.exclusionGroup?.id
            && before.exclusionGroup?.trafficAllocation == after.exclusionGroup?.trafficAllocation
        return isInSameGroup && before.isRunning == after.isRunning
            && before.trafficAllocation == after.trafficAllocation
            && before.forcedVariations == after.forcedVariations
            && before.variations.map(\.id) == after.variations.map(\.id)
            && former.audience(of: before) == edited.audience(of: after)
    }

    // MARK: Users

    /// Whether a user is enrolled in an experiment whose users may be moved.
    func concerns(_ profile: ProfileRecord) -> Bool {
        sequences.contains { sequence in sequence.affected.contains { profile[$0] != nil } }
    }

    /// Returns the stored data of a user on which decisions before the change depend.
    func stored(_ profile: ProfileRecord, of userID: Identifier, _ record: AttributeRecord?) -> StickyAssignments {
        stored(profile, of: userID, record, schema)
    }

    private func stored(
        _ profile: ProfileRecord, of userID: Identifier, _ record: AttributeRecord?, _ schema: AttributeSchema
    ) -> StickyAssignments {
        StickyAssignments(
            profile, forced: forcedVariations[userID],
            attributes: schema.isEmpty ? nil : StoredAttributes(schema: schema, record: record))
    }

    /// Returns how a user is moved, at most once for each flag.
    func moves(of userID: Identifier, _ profile: ProfileRecord, _ record: AttributeRecord?) -> [Move] {
        let before = stored(profile, of: userID, record, schema)
        let after = stored(profile, of: userID, record, editedSchema)
        return sequences.compactMap { sequence in
            enrollment(of: userID, before, after, in: sequence).flatMap { move(of: $0, in: sequence) }
        }
    }

    /// A user who is enrolled in an experiment before the change.
    private struct Enrollment {
        let userID: Identifier
        /// The stored data of the user, with the conditions of segments before the change.
        let before: StickyAssignments
        /// The stored data of the user, with the conditions of segments after the change.
        let after: StickyAssignments
        let experiment: Experiment
        /// The place of the experiment in the sequence.
        let index: Int
        /// The variation that the user has.
        let variation: Variation

        func move(_ cause: Cause, to next: Variation?) -> Move {
            Move(
                experiment: experiment.key, cause: cause, changesVariation: next.map { $0.key != variation.key } ?? true
            )
        }
    }

    /// Returns the experiment of a sequence that decides a user before the change; `nil` if no stored assignment
    /// decides, or if the users of the experiment are not moved.
    private func enrollment(
        of userID: Identifier, _ before: StickyAssignments, _ after: StickyAssignments, in sequence: Sequence
    ) -> Enrollment? {
        let decisions = DecisionService(datafile: former)
        for (index, experiment) in sequence.former.enumerated() where experiment.isRunning {
            guard let held = decisions.heldVariation(of: experiment, for: userID, stored: before) else { continue }
            guard sequence.affected.contains(experiment.id), before.profile?[experiment.id] != nil else { return nil }
            return Enrollment(
                userID: userID, before: before, after: after, experiment: experiment, index: index,
                variation: held.variation)
        }
        return nil
    }

    /// Returns how the change moves a user; `nil` if the user keeps the variation, or if the experiment is stopped.
    private func move(of user: Enrollment, in sequence: Sequence) -> Move? {
        let formerDecisions = DecisionService(datafile: former)
        let decisions = DecisionService(datafile: edited)
        func variationOfFlag() -> Variation? {
            sequence.flagKey.flatMap { flagKey in
                decisions.decide(flagKey, for: User(id: user.userID), stored: user.after)?.value.variation
            }
        }
        guard let position = sequence.edited.firstIndex(where: { $0.id == user.experiment.id }) else {
            return user.move(sequence.flagKey == nil ? .experimentRemoved : .ruleRemoved, to: variationOfFlag())
        }
        if let move = moveToEarlier(of: user, before: position, in: sequence) { return move }
        let edited = sequence.edited[position]
        guard edited.isRunning else { return nil }
        if let holdout = decisions.assign(edited, for: User(id: user.userID), stored: user.after).holdout,
            formerDecisions.assign(user.experiment, for: User(id: user.userID), stored: user.before).holdout == nil
        {
            return user.move(.holdout(holdout.key), to: nil)
        }
        guard let kept = decisions.heldVariation(of: edited, for: user.userID, stored: user.after)?.variation else {
            return user.move(.variationRemoved(user.variation.key), to: variationOfFlag())
        }
        return kept.id == user.variation.id ? nil : user.move(.whitelist, to: kept)
    }

    /// Returns the move of a user to an experiment that decides earlier; `nil` if none takes the user.
    ///
    /// - Parameter position: the place of the user's experiment after the change.
    private func moveToEarlier(of user: Enrollment, before position: Int, in sequence: Sequence) -> Move? {
        let formerDecisions = DecisionService(datafile: former)
        let decisions = DecisionService(datafile: edited)
        for earlier in sequence.edited[..<position] where earlier.isRunning {
            if let taken = decisions.heldVariation(of: earlier, for: user.userID, stored: user.after) {
                return user.move(.earlierExperiment(earlier.key), to: taken.variation)
            }
            guard let taken = decisions.possibleEnrollment(of: earlier, for: user.userID, stored: user.after) else {
                continue
            }
            // If the experiment could take the user before the change, too, the change does not move the user.
            let formerEarlier = sequence.former[..<user.index].first { $0.id == earlier.id }
            let formerEnrollment = formerEarlier.flatMap { experiment in
                formerDecisions.possibleEnrollment(of: experiment, for: user.userID, stored: user.before)
            }
            if formerEnrollment == nil { return user.move(.earlierExperiment(earlier.key), to: taken) }
        }
        return nil
    }
}

extension AttributeSchema {
    /// Returns the schema with attributes and segments added. One that has the name of an existing one replaces it.
    func with(attributes new: [AttributeDefinition] = [], segments edited: [Segment] = []) -> AttributeSchema {
        let names = Set(new.map(\.name))
        // The store gives new attributes their numbers. Until then each needs one that no other has.
        var number = attributes.map(\.number).max() ?? 0
        let numbered = new.map { definition in
            if let former = attribute(definition.name) { return definition.numbered(former.number) }
            number += 1
            return definition.numbered(number)
        }
        return AttributeSchema(
            attributes: attributes.filter { !names.contains($0.name) } + numbered,
            segments: Array(segments.values) + edited)
    }
}
