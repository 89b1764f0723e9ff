// A figure alone, in a frame of another page.

import { Costs } from "./costs.js";
import { Rig } from "./rig.js";
import { Slow } from "./slow.js";
import { Split } from "./split.js";
import { Stages } from "./stages.js";

customElements.define("mh-split", Split);
customElements.define("mh-costs", Costs);
customElements.define("mh-slow", Slow);
customElements.define("mh-stages", Stages);
customElements.define("mh-cards", Rig);
