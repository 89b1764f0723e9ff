// The simulated figures: all that a frame of another page needs, and part of the article.

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
