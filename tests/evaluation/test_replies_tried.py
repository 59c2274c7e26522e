"""Adversarial replies: bounds, scores, positions, phrasal verbs, headings, second thoughts."""

import pytest

from aviot.evaluation.choices import choose

# Options, and the replies that choose each of them by its place, or none
REPLIES = {
    ("a cat", "a dog", "a bird", "a fish"): {
        0: """
            A: 70 %, B: 30 %
            I choose number 1.
            A: 60% B: 40%
            A > B
            Video 10% done. A.
            A is correct. Wait, B shows the dog. B is wrong though.
            Wait, is it A? Yes, A.
            The dogs wait. A.
            Let me think. The answer is A.
            A~~
            I think it's A. No doubt: A.
            Yes: A. No: B, C, D.
            A. No: B, C
            #1
            A correct, B incorrect, C incorrect, D incorrect
            My money is on A.
            I am confident in A.
            A with high confidence
            The options B, C, and D all mention other animals, so A must be correct.
        """,
        1: """
            My first choice would be B.
            A, no wait, B.
            ~~A~~ B
            <s>A</s> B
            B? Definitely.
            A (10%), B (80%), C (5%), D (5%)
            B with 95% confidence.
            First choice: B, second choice: D.
            Score A: 3/10, B: 9/10.
            No. 2
            Answer number 2.
            A false, B true, C false, D false
            Unless I am mistaken, B.
            I think it's A. Actually, no: B.
            A? Actually, no: B.
            It's a cat. Actually, no: a dog.
            (A) 5% (B) 90% (C) 3% (D) 2%
            A. a cat - 20%\\nB. a dog - 70%\\nC. a bird - 5%\\nD. a fish - 5%
            a cat: 20%, a dog: 80%
            A: 30%\\nB: 70%\\n\\nAnswer: B
            P(A) = 0.1, P(B) = 0.9
            A 0.3, B 0.7
            A has a 30% chance, B has a 70% chance.
            I'd give A 30% and B 70%.
            B >> A
            That B is correct is clear.
            The claim that B is correct is true.
            The fact that it barks shows that B is correct.
            The belief that it's A is wrong; it's B.
            First choice: B
            My initial answer is A. However, B fits better.
            B. Wait, let me check A. A is wrong.
            The answer is A. Hold on, the animal barks, so B.
            The answer is B. Let me check: yes, B.
            Answer: B\\nEdit: I still think B.
            ~~A. a cat~~\\nB. a dog
            <s>B</s>
            ~B
            The answer: no. 2
            no. B
            Not number 1 but number 2.
            B? Of course.
            A wrong, B right.
            Incorrect:\\n- A\\n- C\\n- D\\n\\nCorrect:\\n- B
            Wrong:\\n- A\\n- C\\n\\nRight:\\n- B
            Correct:\\n- B. a dog\\n\\nIncorrect:\\n- A. a cat\\n- C. a bird\\n- D. a fish
            | Option | Verdict |\\n|---|---|\\n| A | ✗ |\\n| B | ✓ |\\n| C | ✗ |\\n| D | ✗ |
            | Option | Likely? |\\n|---|---|\\n| A | 10% |\\n| B | 80% |\\n| C | 5% |\\n| D | 5% |
            A: The cat isn't visible.\\nB: A dog runs.\\nC: No bird.\\nD: No fish.\\nTherefore, the correct answer is B.
            Step 1: watch. Step 2: compare. Option B matches what is seen, while A, C, D do not.
            The animal barks; cats don't bark. Answer: B
            B) a dog is the best answer as there is no cat, bird or fish.
            The correct option is B) a dog.\\n\\nExplanation: A) a cat is not seen. C) a bird is not seen.
            {'answer': 'B'}
            {"A": 0.1, "B": 0.7, "C": 0.1, "D": 0.1}
            answer=B
            A cat? No, a dog.
            Dog
            THE DOG
            Based on the video, the answer is a dog
            The answer is (B), since the first frames show it, the last do not.
            Answer: B (second option)
            The second option, B
            Option B, i.e. the second one.
            B, the dog.
            Yes, B is right.
            Correct answer: B. Incorrect answers: A, C, D.
        """,
        2: """
            My first choice is C.
            At first sight it looks like A, yet the wings make it C.
            I first picked A; I now pick C.
            Answer: A. Wait, the last frame shows a bird. Answer: C.
            Answer: A\\n\\nEdit: the answer is C.
            ~~A~~ **C**
            <del>B</del> C
            A: 10%, B: 20%, C: 60%, D: 10%
            I'm 80% confident in C.
            Ranking: C > A > B > D
            C > A > D
            #3
            The answer is number three.
            The second to last option.
            The penultimate option.
            My vote: C
            I'd put my money on C.
            The best answer among these is option (c).
            The claim that B is correct is false, so C.
            My first choice is B. My final choice is C.
            My first choice is C, but I am not sure.
            <s> The answer is C. </s>
            The second-to-last option is right.
            The answer is the last but one option.
            C (not D)
            so C
            **Incorrect options:**\\n* A. a cat\\n* B. a dog\\n* D. a fish\\n\\n**Correct option:**\\n* C. a bird
            Eliminate A. Eliminate B. Eliminate D.
            I eliminated A, B, and D.
            {"choice": "C", "confidence": 0.8}
            Not A since the cat is absent. Not B either. C shows a bird, which matches.
            It's a bird! It's a plane!
            More like C.
            C, more or less.
            C more likely than B
            The answer, I believe, is C.
            The answer - if I am not mistaken - is C.
            The answer could be C.
            Maybe C.
            C!
        """,
        3: """
            My initial answer is D and I stand by it.
            ~~The answer is A.~~ The answer is D.
            A - 0.1\\nB - 0.2\\nC - 0.1\\nD - 0.6
            Number 4
            Number 4.
            A: no\\nB: no\\nC: no\\nD: maybe
            My first pick: D
            Number 4 is correct.
            My vote goes to D.
            Not correct:\\n- A\\n- B\\n- C
            Ruled out:\\nA\\nB\\nC
        """,
        None: """
            The claim that B is correct is false.
            There's no way it is D.
            B (or possibly C)
            A: 1/10\\nB: 8/10\\nC: 8/10
            A < B
            A -> B
            Probability of A is 0.8.
            The statement that A is right is wrong.
            The idea that a dog is shown is false.
            Thinking that it is C is a mistake.
            The view that D is correct is not supported.
            Her first choice is C.
            My initial answer was C.
            Wait for the signal. B or C.
            A is right. Let me look at B too. B is also right.
            ~~B~~
            Number 4 wins the race.
            The man with number 3 wins.
            Player number 2.
            He is number one.
            No. 3 is wrong.
            No. 2 dogs are seen.
            Number 9
            number 1 or number 2
            B? Certainly not.
            I am not confident in A.
            I'm less confident in A.
            Unless the video is cut, B.
            C (or maybe D)
            C (and D)
            Incorrect:\\n- A\\n- B
            Possible:\\n- A\\n- B
            Answer is A or maybe B, but definitely not C.
            It's neither a cat nor a dog nor a fish.
            It isn't a cat, a dog, or a fish.
            A cat-like dog.
            The dog is seen next to a cat.
            Answer: B (third option)
            C. The dog.
            I'd say 70/30 for A.
            A > C but B > A
            rank: 1. B 2. A 3. C 4. D
            No, B is wrong.
            No, it's not B.
            I'd guess C?
            Both B and C are wrong, so it's A or D.
        """,
    },
    ("2", "3", "4", "5"): {
        1: """
            I see 2 on the left and 1 on the right, so 3 in total.
            2 plus 1 equals 3.
            It's 3 — not 4.
            It's 3 - not 4.
            1. First dog\\n2. Second dog\\n3. Third dog\\nSo 3.
            The number is 3
        """,
        2: """
            2 + 2 = 4
            At 0:03 there are 4.
        """,
        None: """
            less than 3
            Less than 3.
            fewer than 3
            more than 3
            at least 3
            at most 4
            up to 5
            over 4
            under 4
            3-4
            3 or more
            3+
            >3
            ≥ 3
            <4
            3 out of 5
            He scores 3 - 2.
            At 3 seconds there are 4 people.
        """,
    },
    ("one", "two", "three", "four"): {
        0: """
            Not more than two, I think exactly one.
        """,
        1: """
            Two, no more and no less.
            roughly two
        """,
        2: """
            three, rather than two
            There are three dogs, not two.
            It isn't two but three.
            Three.
            The total number of people is 3.
        """,
        3: """
            There are approximately four people.
        """,
        None: """
            There are more than two people.
            It is greater than three.
            There are two men and three women.
            Two men and one woman, that is three people.
            two out of four
            one or two
            one to two
            Two people at least.
            No other number than three.
            I counted one, two, three.
            one, two, three, four
            three-legged
            at most one
            There is nobody.
            zero
            three people: one man and two women
            The man lifts it two to three times.
        """,
    },
    ("once", "twice", "three times", "four times"): {
        None: """
            He jumps more than twice.
            He jumps at least three times.
            He did it once, and then once more.
            He claps once more.
            He claps once and then again.
        """,
    },
    ("up", "down"): {
        0: """
            He points up at the ceiling.
            The bird flies up into the tree.
            He walks up the stairs.
            He walks up to the counter.
            The price went up by 3.
            He ran up a bill.
        """,
        1: """
            The thumb is pointing down.
            She looks down at the floor.
            She looked down on him.
            The page scrolls down slowly.
            He runs down the hill.
        """,
        None: """
            He turned up late.
            He looks up a word.
            He came up with an idea.
            The man turns up the volume.
            He turned down the offer.
            He pulls up a chair.
            He pulls down the blind.
            He broke down.
            He wrote it down.
            He turned it upside down.
            He is upside down.
            Upstairs.
        """,
    },
    ("up", "down", "left", "right"): {
        None: """
            The man turned up late.
        """,
    },
    ("on", "off"): {
        0: """
            He turns the light on.
            He turns on the TV.
            He turns it on.
        """,
        1: """
            She switches off the lamp.
            She switched the lamp off.
        """,
        None: """
            He turns it on and off.
            He did not turn it on.
            He never turns on the light.
            It was on, then he switched it off.
            He turns to the camera on the left.
        """,
    },
    ("True", "False"): {
        1: """
            The statement is untrue.
        """,
    },
    ("He opens the door", "He closes the window", "He sits on the sofa", "He leaves the room"): {
        0: """
            He opens the door.
            He opens the door but does not leave the room.
            He opens the door before leaving the room.
        """,
        2: """
            He sits on the sofa, having opened the door.
        """,
        None: """
            He closes the window and then leaves the room.
            He opens the door and sits on the sofa.
            He opens the door, then he leaves the room.
        """,
    },
    ("red", "blue", "green", "yellow"): {
        0: """
            It is red, so it is not blue.
            The shirt is red. So blue is wrong.
        """,
        1: """
            The car is red and the bus is blue; the question asks about the bus, so blue.
            It was red, so I choose blue.
        """,
        2: """
            The shirt is red, the hat is blue, so green.
        """,
    },
    ("3 years", "10 years", "20 years", "30 years"): {
        1: """
            He is about 10 years old.
        """,
        None: """
            He is over 10 years old.
            He is 10 years old at most.
            at least 20 years
            20 years, at least that is what the caption says.
        """,
    },
    ("less than 10 seconds", "10 seconds", "more than 10 seconds"): {
        0: """
            It lasts less than 10 seconds.
        """,
        1: """
            10 seconds.
            It lasts exactly 10 seconds.
        """,
        2: """
            It lasts more than 10 seconds.
        """,
        None: """
            It is no more than 10 seconds.
        """,
    },
    ("1-2", "3-4", "5-6", "7+"): {
        1: """
            3-4
            3 to 4
        """,
        3: """
            7
            7 or more
            There are 7+ people.
        """,
        None: """
            Between 3 and 4.
            3
        """,
    },
    ("1", "2", "3", "3+"): {
        2: """
            3
        """,
        3: """
            3+
            3 or more
            more than 3
        """,
        None: """
            at most 2
        """,
    },
    ("10%", "20%", "70%", "100%"): {
        2: """
            70%
            It is 70% full.
        """,
        None: """
            A: 10%, B: 20%, C: 70%, D: 100%
            More than 20%.
        """,
    },
    ("3 cups", "4 cups", "5 cups", "6 cups"): {
        1: """
            I see 4 cups.
            3 cups on the table and 1 on the floor make 4 cups.
        """,
        2: """
            There are not 4 cups but 5 cups.
            3 + 2 = 5 cups
        """,
        3: """
            3 cups here and 3 cups there, 6 cups in total.
        """,
        None: """
            I see more than 4 cups.
            4 cups or more
            There are 6 cups in total, 3 cups of them red.
        """,
    },
    ("left", "right"): {
        0: """
            Left-hand side
        """,
        1: """
            He left on the right.
        """,
        None: """
            Turn left, then right.
        """,
    },
    ("1", "2", "3"): {
        1: """
            2.
            (2)
        """,
        None: """
            x2
            2.5
            -2
            12
            two hundred
        """,
    },
    ("two", "three"): {
        None: """
            two thousand
            two thirds
        """,
    },
    ("two", "twenty"): {
        None: """
            twenty-two
        """,
    },
    ("one", "two"): {
        None: """
            one half
        """,
    },
    ("1", "2"): {
        None: """
            1/2
            2 1
        """,
    },
    ("clockwise", "counterclockwise"): {
        0: """
            It rotates clockwise, not counter-clockwise.
            Clockwise
        """,
        1: """
            counter-clockwise
            Counter clockwise.
            It rotates anti-clockwise.
            It turns anticlockwise, not clockwise.
        """,
    },
    ("Anti-clockwise", "Clockwise rotation", "Clockwise"): {
        0: """
            It turns counterclockwise.
            counter-clockwise rotation
        """,
        2: """
            It turns clockwise.
        """,
    },
    ("violent", "peaceful"): {
        1: """
            It is non-violent and peaceful.
        """,
        None: """
            It is non-violent.
        """,
    },
}


CASES = [
    (options, line.strip().replace("\\n", "\n"), right)
    for options, blocks in REPLIES.items()
    for right, block in blocks.items()
    for line in block.strip().splitlines()
]


@pytest.mark.parametrize("options", REPLIES, ids=lambda options: options[0])
def test_every_reply_is_read_as_it_is_meant(options):
    read = [(reply, right, choose(reply, options).index) for each, reply, right in CASES if each == options]
    wrong = [row for row in read if row[1] != row[2]]
    assert not wrong, "\n".join(f"{reply!r}: {right}, read {got}" for reply, right, got in wrong)
