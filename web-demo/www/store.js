// What the page knows: of the engine, of the run that is shown, and of what its visitor wants. `page.js` alone changes it.

/** @import { Known } from "./data.js" */
/** @import { EpochLog, Event, Info, Member, Settings, State, StepLog, Told } from "./messages.js" */
/** @import { Replay } from "./replay.js" */

/** Steps that the metrics keep, the newest: some tens of megabytes. */
const MOST_STEPS = 20_000;
const MOST_NOTICES = 1000;

/** What is known of a run. */
class Run {
  /** @type {Member[]} */
  members = [];
  /** @type {State} */
  state = "idle";
  /** Training steps so far. */
  step = 0;
  /** Epochs begun so far. */
  epoch = 0;
  /** @type {StepLog[]} */
  steps = [];
  /** @type {EpochLog[]} */
  epochs = [];
  /** @type {{ step: number, message: string }[]} */
  notices = [];
  /** All members of this page's life, by their ids, as logs name them. @type {Map<number, Info>} */
  known = new Map();

  /** Another run with the same members begins. */
  clear() {
    [this.steps, this.epochs, this.notices] = [[], [], []];
  }

  /**
   * Takes steps. Those from the first of them on are trained again, and are removed: after the only adapter was lost, from the last copy
   * of its weights. Gives whether there were some.
   * @param {StepLog[]} now At least one.
   */
  take(now) {
    const [{ step: first }, last] = [now[0], now[now.length - 1]];
    const is_again = (this.steps[this.steps.length - 1]?.step ?? 0) >= first;
    if (is_again) {
      this.steps = this.steps.filter(({ step }) => step < first);
      this.epochs = this.epochs.filter(({ step }) => step < first);
    }
    [this.step, this.epoch] = [last.step, last.epoch];
    this.steps.push(...now);
    if (this.steps.length > MOST_STEPS) this.steps = this.steps.slice(-MOST_STEPS);
    return is_again;
  }

  /** @param {number} step @param {string} message */
  note(step, message) {
    this.notices.push({ step, message });
    if (this.notices.length > MOST_NOTICES) this.notices.shift();
  }

  /** A run from a file, with the members of this one until its own are told. */
  replayed() {
    const run = new Run();
    [run.members, run.state] = [this.members, "paused"];
    return run;
  }
}

export class Store {
  /** What the engine said first, with what can be learned now. @type {Told<"hello"> | null} */
  hello = null;
  /** What was known of the data that are shown. @type {Known | null} */
  shown = null;
  /** @type {Settings | null} */
  settings = null;
  run = new Run();
  /** Whether the visitor wants training to continue, whatever the engine does now. */
  is_to_run = false;
  /** Whether the engine has failed. */
  is_dead = false;
  /** When adapters began to be opened. */
  opened_ms = 0;
  /** The address of this visit, as long as the data that it names were not learned: then empty. */
  address = location.search;
  /** Whether other data were chosen, and what the engine still sends may be of the run before. */
  is_of_former = false;
  /** What the line beside the buttons says; before the first state nothing of these. @type {"state" | "report" | "error" | null} */
  says = null;
  /**
   * A run from a file that is shown in place of the engine's, with what brings back the page as it was before, and what the engine said
   * meanwhile: it is heard afterwards.
   * @type {{ replay: Replay, restore: () => void, held: Event[] } | null}
   */
  replaying = null;
}
